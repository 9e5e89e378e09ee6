"""`tidemill up` on Kafka and PostgreSQL: the same command, the same promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.command_assistant.demo_stack import server_settings
from tests.acceptance.running_up import (
    PARTS,
    Up,
    require_everything_stored,
    settle,
    wait_until,
    write_project,
)
from tests.servers import new_kafka_broker
from tidemill.contracts.events import TOPICS
from tidemill.eventlog.opening import open_log
from tidemill.storage import schema

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def up(tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """An installation on empty servers that is not started yet."""
    # MLflow takes long to start; test_production_column.py has a real one.
    monkeypatch.setenv("TIDEMILL_TRACKING__ENABLED", "false")
    # A broker of its own: here the topics have the names that production gives them.
    broker = new_kafka_broker(tmp_path / "kafka")
    broker.start()
    up = Up(tmp_path)
    servers = server_settings(
        bootstrap=broker.bootstrap, database=postgres_url, mlflow="http://127.0.0.1:9"
    )
    write_project(tmp_path, servers=servers)
    yield up
    up.end()
    broker.stop()


def test_one_command_prepares_the_servers_and_loses_nothing(up: Up) -> None:
    product = up.start().product()
    product.wait_for_answers()
    _require_prepared(up)
    product.start_talking()
    for part in PARTS:
        wait_until(lambda part=part: up.pid(part), f"{part} is not ready")
    wait_until(lambda: len(product.feedback) > 5, "the product waits")
    product.finish()
    settle(up)
    assert up.stop() == 0, up.output

    again = up.start().product()
    assert again.keys == product.keys
    again.wait_for_answers()
    again.talk()
    settle(up)
    for one in (product, again):
        require_everything_stored(up.database, one)
    assert up.stop() == 0, up.output


def _require_prepared(up: Up) -> None:
    """Look for tables and topics on the servers, and for none of them in the data folder."""
    assert not up.database.is_sqlite
    assert schema.fetch_state(up.database).is_current
    log = open_log(up.shared)
    assert all(log.bounds(topic) for topic in TOPICS)
    log.close()
    assert not (up.data / "tidemill.db").exists()
    assert not (up.data / "log").exists()
