import json
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.opening import open_log
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An installation whose log holds an interaction and two feedbacks, read by nobody."""
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\nmetrics = "{tmp_path / "metrics.toml"}"\n')
    (tmp_path / "metrics.toml").write_text(METRICS)
    database = Database(SharedSettings(data=tmp_path).database_url)
    upgrade(database)
    database.close()
    interaction = make_interaction()
    append(tmp_path, INTERACTIONS, interaction.key, encode(interaction))
    for name in ("f0", "f1"):
        feedback = make_feedback(interaction, feedback_id=name)
        append(tmp_path, FEEDBACK, interaction.key, encode(feedback))
    return path


def append(data: Path, topic: str, key: str, value: bytes) -> None:
    log = open_log(SharedSettings(data=data))
    log.create_topics(TOPICS)
    sink = log.sink()
    sink.append(topic, key, value).result(10)
    sink.close()
    log.close()


def read_all(data: Path) -> None:
    shared = SharedSettings(data=data)
    database, log = Database(shared.database_url), open_log(shared)
    member = Member(database, log, IngestSettings(close_grace_s=0), parse_metrics(METRICS))
    while member.read_once(timeout_s=0.2):
        pass
    member.close()
    log.close()
    database.close()


def call(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--settings", str(settings), "log", *arguments])


def test_what_is_kept_is_printed_from_the_beginning(settings: Path) -> None:
    result = call(settings, "tail", "feedback", "--from-beginning", "--no-follow", "--json")
    assert result.exit_code == 0
    ids = [json.loads(line)["event"]["feedback_id"] for line in result.stdout.splitlines()]
    assert ids == ["f0", "f1"]
    one = call(settings, "tail", FEEDBACK, "--from-beginning", "--limit", "1")
    assert one.stdout.count("\n") == 1
    assert "f0 accepted=True" in one.stdout


def test_a_tail_begins_at_the_end_and_waits(settings: Path) -> None:
    def send() -> None:
        time.sleep(0.5)
        append(settings.parent, FEEDBACK, "k", b"junk")

    sender = threading.Thread(target=send)
    sender.start()
    result = call(settings, "tail", "feedback", "--limit", "1")
    sender.join()
    assert "unusable: " in result.stdout
    assert call(settings, "tail", "feedback", "--no-follow").stdout == ""


def test_an_unknown_topic_is_a_usage_error(settings: Path) -> None:
    assert call(settings, "tail", "gossip").exit_code == 2


def test_stats_tell_what_is_kept_and_what_is_unread(settings: Path) -> None:
    def sums() -> dict[str, tuple[int, int | None, bool]]:
        rows = json.loads(call(settings, "stats", "--json").stdout)
        assert len(rows) == 4 * len(TOPICS)
        return {
            topic: (
                sum(row["num_records"] for row in rows if row["topic"] == topic),
                sum(row["lag_records"] for row in rows if row["topic"] == topic),
                any(row["lag_s"] for row in rows if row["topic"] == topic),
            )
            for topic in (INTERACTIONS, FEEDBACK)
        }

    assert sums() == {INTERACTIONS: (1, 1, True), FEEDBACK: (2, 2, True)}
    read_all(settings.parent)
    assert sums() == {INTERACTIONS: (1, 0, False), FEEDBACK: (2, 0, False)}
    text = call(settings, "stats")
    assert text.exit_code == 0
    assert "committed" in text.stdout
