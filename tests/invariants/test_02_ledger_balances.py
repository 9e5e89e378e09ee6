"""Invariant 2, the ledger's half: the sums balance, always, also under kill -9, and a single
row or record that is missing is found. Kills without retention: test_01.
"""

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, text
from typer.testing import CliRunner

from ingest.member import Member
from tests.factories import make_feedback, make_interaction
from tests.ingest_processes import METRICS, Installation, installation
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.embedded_files import topic_path
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import EmbeddedLogSettings
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience_digests
from tidemill.storage.ledger import fetch_rows_side
from tidemill.storage.tables import FeedbackRow

ROUNDS = 5


def fill(made: Installation, *, seed: int, num_interactions: int) -> int:
    """Append interactions, feedback, repeats and junk; return how many records."""
    rng = random.Random(seed)
    with made.open_log() as log:
        log.create_topics(TOPICS)
        sink = log.sink()
        futures = []
        for _ in range(num_interactions):
            event = make_interaction()
            payload = encode(event)
            futures += [
                sink.append(INTERACTIONS, event.key, payload)
                for _ in range(1 + (rng.random() < 0.1))
            ]
            for rater in rng.sample("abc", rng.randrange(4)):
                feedback = make_feedback(event, rater=rater, value=rng.random() < 0.5)
                futures.append(sink.append(FEEDBACK, feedback.key, encode(feedback)))
            if rng.random() < 0.1:
                futures.append(sink.append(FEEDBACK, event.key, b"junk"))
        for future in futures:
            future.result(30)
        sink.close()
    return len(futures)


def wait_until_closed(database: Database) -> None:
    deadline = time.monotonic() + 60
    counts: dict[str, int] = {"open": 1}
    while counts.get("open", 0) and time.monotonic() < deadline:
        time.sleep(0.1)
        with database.reading() as session:
            counts = fetch_rows_side(session, group="ingest").interactions
    assert counts.get("open", 0) == 0


@pytest.mark.slow
@pytest.mark.integration
def test_the_ledger_balances_while_retention_takes_what_was_read(tmp_path: Path) -> None:
    rng = random.Random(5)
    with installation(tmp_path) as made:
        made.shared = made.shared.model_copy(update={"log": EmbeddedLogSettings(retention_s=0.5)})
        made.settings = made.settings.model_copy(update={"retain_every_s": 0.05})
        total = 0
        for number in range(ROUNDS):
            total += fill(made, seed=number, num_interactions=100)
            worker = made.start("worker")
            goal = total - rng.randrange(50)
            while made.num_processed() < goal:
                assert worker.poll() is None
                time.sleep(rng.uniform(0, 0.03))
            # Past the retention, so that the kill may come in the middle of a removal.
            time.sleep(rng.uniform(0.4, 0.7))
            with made.open_log() as log:
                assert take_ledger(made.database, log).problems == []
            made.kill(worker)
            with made.open_log() as log:
                assert take_ledger(made.database, log).problems == []
        worker = made.start("worker")
        while made.num_processed() < total:
            assert worker.poll() is None
            time.sleep(0.02)
        wait_until_closed(made.database)
        made.kill(worker)
        with made.open_log() as log:
            taken = take_ledger(made.database, log)
            gone = sum(bounds.first for bounds in log.bounds(INTERACTIONS).values())
        assert taken.problems == []
        assert gone > 50 * ROUNDS
        assert sum(sums["in_log"] for sums in taken.records.values()) == total
        with made.database.reading() as session:
            assert len(fetch_experience_digests(session)) == 100 * ROUNDS


@pytest.fixture
def balanced(tmp_path: Path) -> Iterator[Installation]:
    """A small installation whose ledger balances."""
    with installation(tmp_path) as made:
        total = fill(made, seed=4, num_interactions=60)
        with made.open_log() as log:
            worker = Member(made.database, log, made.settings, parse_metrics(METRICS))
            while made.num_processed() < total:
                worker.read_once()
            time.sleep(2.3)
            while worker.close_once():
                pass
            worker.close()
        assert ledger_exit_code(made) == 0
        yield made


def ledger_exit_code(made: Installation) -> int:
    settings = made.shared.data / "tidemill.toml"
    settings.write_text(f'data = "{made.shared.data}"\nmetrics = "{made.shared.metrics}"\n')
    result = CliRunner().invoke(app, ["--settings", str(settings), "ledger", "--json"])
    return result.exit_code


@pytest.mark.parametrize(
    "table",
    ["interactions", "feedback", "duplicate_deliveries", "dead_letters", "log_offsets"],
)
def test_one_missing_row_is_found(balanced: Installation, table: str) -> None:
    with balanced.database.transaction() as session:
        one = f"SELECT rowid FROM {table} ORDER BY rowid LIMIT 1"  # noqa: S608  our own tables
        session.execute(text(f"DELETE FROM {table} WHERE rowid = ({one})"))  # noqa: S608
    assert ledger_exit_code(balanced) == 1


def test_one_missing_experience_is_found(balanced: Installation) -> None:
    with balanced.database.transaction() as session:
        one = "SELECT experience_id FROM experiences LIMIT 1"
        session.execute(text(f"DELETE FROM experiences WHERE experience_id = ({one})"))  # noqa: S608
    assert ledger_exit_code(balanced) == 1


@pytest.mark.parametrize("topic", [INTERACTIONS, FEEDBACK])
@pytest.mark.parametrize("which", ["first", "last"])
def test_one_missing_log_record_is_found(balanced: Installation, topic: str, which: str) -> None:
    order = "ASC" if which == "first" else "DESC"
    with closing(sqlite3.connect(topic_path(balanced.shared.log_path, topic))) as connection:
        one = f"SELECT id FROM records ORDER BY id {order} LIMIT 1"  # noqa: S608
        connection.execute(f"DELETE FROM records WHERE id = ({one})")  # noqa: S608
        connection.commit()
    assert ledger_exit_code(balanced) == 1


def test_an_unknown_state_is_found(balanced: Installation) -> None:
    with balanced.database.transaction() as session:
        row = session.scalars(select(FeedbackRow).limit(1)).one()
        row.state = "lost"
    assert ledger_exit_code(balanced) == 1
