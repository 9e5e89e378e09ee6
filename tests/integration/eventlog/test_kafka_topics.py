"""Topics on a real broker: made as declared, and every difference found."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from pydantic import ValidationError
from typer.testing import CliRunner

from tests.servers import new_kafka_broker
from tidemill.cli.main import app
from tidemill.contracts.events import TOPICS
from tidemill.eventlog.kafka import KafkaLog
from tidemill.eventlog.kafka_topics import declared_configs
from tidemill.settings import KafkaLogSettings

pytestmark = pytest.mark.integration


def open_log(bootstrap: str, **settings: object) -> KafkaLog:
    return KafkaLog(KafkaLogSettings(bootstrap_servers=bootstrap, **settings))


def alter(log: KafkaLog, topic: str, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    log._admin().alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, named)])


def test_a_new_topic_is_as_declared(kafka_bootstrap: str) -> None:
    topic = f"t.{uuid4().hex[:8]}"
    log = open_log(kafka_bootstrap, retention_s=3600.0, retention_bytes=1 << 20)
    [missing] = log.find_drift((topic,))
    assert str(missing) == f"{topic}: topic is missing, declared there"
    assert log.settle_topics((topic,)) == []
    assert log.find_drift((topic,)) == []
    [resource] = [ConfigResource(ConfigResourceType.TOPIC, topic)]
    found = log._admin().describe_configs([resource], config_filter="all")["topic"][topic]
    assert found["retention.ms"]["value"] == "3600000"
    assert found["retention.bytes"]["value"] == str(1 << 20)
    assert found["message.timestamp.type"]["value"] == "LogAppendTime"
    assert found["compression.type"]["value"] == "zstd"
    log.close()


def test_what_somebody_changed_is_found_and_put_right_and_nothing_else(
    kafka_bootstrap: str,
) -> None:
    topic = f"t.{uuid4().hex[:8]}"
    log = open_log(kafka_bootstrap)
    log.create_topics((topic,))
    alter(log, topic, message_timestamp_type="CreateTime", retention_ms="1000", segment_ms="60000")
    assert sorted(map(str, log.find_drift((topic,)))) == [
        f"{topic}: message.timestamp.type is CreateTime, declared LogAppendTime",
        f"{topic}: retention.ms is 1000, declared -1",
    ]
    assert log.settle_topics((topic,)) == []
    assert log.find_drift((topic,)) == []
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    modified = log._admin().describe_configs([resource])["topic"][topic]
    # What is nobody's business but the operator's stays.
    assert modified["segment.ms"]["value"] == "60000"
    log.close()


@pytest.mark.parametrize("declared", [2, 9])
def test_partitions_neither_shrink_nor_grow(kafka_bootstrap: str, declared: int) -> None:
    topic = f"t.{uuid4().hex[:8]}"
    first = open_log(kafka_bootstrap, num_partitions=4)
    first.create_topics((topic,))
    first.close()
    log = open_log(kafka_bootstrap, num_partitions=declared)
    [drift] = log.settle_topics((topic,))
    assert str(drift) == f"{topic}: partitions is 4, declared {declared}"
    assert not drift.is_repairable
    assert len(log.bounds(topic)) == 4
    log.close()


@pytest.fixture
def fresh_bootstrap(tmp_path: Path) -> Iterator[str]:
    """A broker on which nobody has made the topics of an installation yet."""
    broker = new_kafka_broker(tmp_path / "kafka")
    broker.start()
    yield broker.bootstrap
    broker.kill()


def test_the_command_names_the_drift(
    fresh_bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tidemill.toml").write_text(
        f"[log]\nkind = 'kafka'\nbootstrap_servers = '{fresh_bootstrap}'\n"
    )
    runner = CliRunner()
    runner.invoke(app, ["topics", "apply"])
    assert runner.invoke(app, ["topics", "check"]).exit_code == 0
    log = open_log(fresh_bootstrap)
    alter(log, TOPICS[1], retention_ms="1000")
    log.close()
    said = runner.invoke(app, ["topics", "check"])
    assert said.exit_code == 1
    assert f"{TOPICS[1]}: retention.ms is 1000, declared -1" in said.output
    assert "run `tidemill topics apply`" in said.output
    repaired = runner.invoke(app, ["topics", "apply"])
    assert repaired.exit_code == 0
    assert f"put right: {TOPICS[1]}: retention.ms is 1000" in repaired.output
    assert runner.invoke(app, ["topics", "check"]).exit_code == 0


def test_with_three_copies_two_must_have_a_record() -> None:
    settings = KafkaLogSettings(bootstrap_servers="b:1", replication_factor=3)
    assert declared_configs(settings)["min.insync.replicas"] == "2"
    with pytest.raises(ValidationError, match="3 is above replication_factor 2"):
        KafkaLogSettings(bootstrap_servers="b:1", replication_factor=2, min_insync_replicas=3)
