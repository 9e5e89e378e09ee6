"""A worker that stands still beyond its session: others go on, it is fenced, it comes back."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select, text

from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_processes import METRICS, Installation
from tests.servers import KafkaBroker, new_kafka_broker
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.base import EventLog
from tidemill.ledger import take_ledger
from tidemill.settings import DatabaseSettings, KafkaLogSettings, SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import FeedbackRow

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    broker = new_kafka_broker(tmp_path / "kafka")
    broker.more = {"group.min.session.timeout.ms": "500"}
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def made(tmp_path: Path, postgres_url: str, broker: KafkaBroker) -> Iterator[Installation]:
    """Workers on Kafka and PostgreSQL, whose sessions are short."""
    metrics = tmp_path / "metrics.toml"
    metrics.write_text(METRICS)
    log = KafkaLogSettings(bootstrap_servers=broker.bootstrap, session_timeout_s=1.0)
    shared = SharedSettings(
        data=tmp_path, metrics=metrics, log=log, database=DatabaseSettings(url=postgres_url)
    )
    database = Database(shared.database_url)
    upgrade(database)
    settings = IngestSettings(
        close_grace_s=0.2, poll_records=20, batch_every_s=0, poll_timeout_s=0.05
    )
    made = Installation(shared, settings, database)
    yield made
    for process in list(made.running):
        made.kill(process)
    database.close()


def until(condition: Callable[[], bool], what: str) -> None:
    # A worker that was stopped in mid-transaction is cut off by the database after 30 s.
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.05)


def pause(made: Installation, process: subprocess.Popen[bytes]) -> None:
    """Stop a worker, though not in the middle of a message: there no limit of PostgreSQL holds."""
    halves = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND wait_event = :event"
    while True:
        process.send_signal(signal.SIGSTOP)
        # What was sent by then has been worked off.
        time.sleep(0.3)
        with made.database.reading() as session:
            if session.scalar(text(halves), {"event": "ClientRead"}) == 0:
                return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)


def append(log: EventLog, count: int) -> set[str]:
    """Append interactions with one feedback each; return the ids of the feedback."""
    sink = log.sink()
    ids, futures = set(), []
    for _ in range(count):
        interaction = make_interaction()
        feedback = make_feedback(interaction)
        ids.add(feedback.feedback_id)
        futures.append(sink.append(INTERACTIONS, interaction.key, encode(interaction)))
        futures.append(sink.append(FEEDBACK, feedback.key, encode(feedback)))
    for future in futures:
        future.result(20)
    sink.close()
    return ids


def test_a_paused_worker_is_fenced_and_comes_back(made: Installation) -> None:
    with made.open_log() as log:
        log.create_topics(TOPICS)
        paused = made.start("worker")
        sent = append(log, 500)
        until(lambda: made.num_processed() >= 100, "the first worker reads")
        pause(made, paused)
        other = made.start("worker")
        until(lambda: made.num_processed() == 1000, "the second worker takes over")
        paused.send_signal(signal.SIGCONT)
        sent |= append(log, 100)
        until(lambda: made.num_processed() == 1200, "both read on")
        assert made.stop(other) == 0
        sent |= append(log, 100)
        until(lambda: made.num_processed() == 1400, "the first worker has come back")
        assert made.stop(paused) == 0
        ledger = take_ledger(made.database, log)
    assert ledger.problems == []
    with made.database.reading() as session:
        assert sorted(session.scalars(select(FeedbackRow.feedback_id))) == sorted(sent)
    assert ledger.num_duplicates == 0
