"""The whole log is replayed through the worker's code, on both logs and both databases."""

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import inspect, text, update
from typer.testing import CliRunner, Result

from ingest.frozen import FrozenLog
from ingest.member import Member
from ingest.replay import compare_replay, prepare_fresh, replay_log
from ingest.settings import IngestSettings
from tests.factories import NOW, make_feedback, make_interaction
from tests.memory_log import MemoryLog
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS, Event, InteractionServed
from tidemill.errors import ConfigurationError, EventLogError
from tidemill.eventlog.base import EventLog
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import EmbeddedLogSettings, SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import downgrade, fetch_state, upgrade
from tidemill.storage.tables import ExperienceRow, JudgementRow

METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 0.3\ndefault = false\n'
OPTIONS = IngestSettings(close_grace_s=0.1, unmatched_after_s=0.2, poll_records=50)


def append(log: EventLog, *events: Event) -> None:
    sink = log.sink()
    futures = [
        sink.append(
            INTERACTIONS if isinstance(event, InteractionServed) else FEEDBACK,
            event.key,
            encode(event),
        )
        for event in events
    ]
    for future in futures:
        future.result(20)
    sink.close()


def traffic(number: int) -> list[Event]:
    events: list[Event] = []
    for index in range(number):
        interaction = make_interaction()
        events.append(interaction)
        if index % 3:
            events.append(make_feedback(interaction, value=index % 2 == 0))
        if index % 5 == 0:
            events += [interaction, make_feedback()]
    return events


def live_through(log: EventLog, database: Database, seconds: float = 1.0) -> None:
    """Read and close what is there, until all windows are over."""
    member = Member(database, log, OPTIONS, parse_metrics(METRICS))
    deadline = time.monotonic() + seconds
    while member.read_once(timeout_s=0.1) or time.monotonic() < deadline:
        member.close_once()
    while member.close_once():
        pass
    member.close()


def test_a_replay_holds_what_the_live_database_holds(
    any_log: EventLog, any_database: Database, tmp_path: Path
) -> None:
    any_log.create_topics(TOPICS)
    append(any_log, *traffic(60))
    live_through(any_log, any_database, 3.0)
    # Not read by the live side, so compared by neither.
    append(any_log, *traffic(5))
    fresh = Database(f"sqlite:///{tmp_path / 'again.db'}")
    prepare_fresh(fresh)
    metrics = parse_metrics(METRICS)
    made = replay_log(any_log, fresh, settings=OPTIONS, metrics=metrics, verifiers={})
    compared = compare_replay(made, any_database)
    assert compared.differences == []
    assert compared.digest == compared.live_digest
    assert compared.num_compared >= 60
    assert compared.left_out["not read yet"] == 5
    assert made.num_experiences >= 60
    assert take_ledger(fresh, any_log).problems == []
    with any_database.transaction() as session:
        session.execute(update(ExperienceRow).values(digest="0" * 64))
    assert len(compare_replay(made, any_database).differences) == compared.num_compared
    with pytest.raises(ConfigurationError, match="not fresh"):
        prepare_fresh(fresh)
    fresh.close()


def test_what_retention_took_is_left_out(database: Database, tmp_path: Path) -> None:
    settings = EmbeddedLogSettings(num_partitions=2, retention_s=0.6)
    log = EmbeddedLog(tmp_path / "log", settings)
    log.create_topics(TOPICS)
    metrics = parse_metrics(METRICS)
    for _ in range(3):
        append(log, *traffic(20))
        live_through(log, database, 0.7)
        member = Member(database, log, OPTIONS, metrics)
        while member.retain_once():
            pass
        member.close()
        assert take_ledger(database, log).problems == []
    append(log, *traffic(20))
    live_through(log, database, 1.2)
    assert all(bounds.first > 0 for bounds in log.bounds(INTERACTIONS).values())
    fresh = Database(f"sqlite:///{tmp_path / 'again.db'}")
    prepare_fresh(fresh)
    made = replay_log(log, fresh, settings=OPTIONS, metrics=metrics, verifiers={})
    compared = compare_replay(made, database)
    assert compared.differences == []
    assert compared.left_out["past retention"] >= 40
    fresh.close()
    log.close()


def test_a_frozen_log_sees_nothing_that_comes_later_and_appends_nothing() -> None:
    log = MemoryLog(num_partitions=1)
    records = [log.put(event) for event in traffic(10)]
    frozen = FrozenLog(log, {topic: log.bounds(topic) for topic in (INTERACTIONS, FEEDBACK)})
    log.put(make_interaction())
    source = frozen.source((INTERACTIONS, FEEDBACK), group="g", positions=lambda _: None)
    found = []
    while batch := source.poll(max_records=7, timeout_s=0):
        found += batch
    assert len(found) == len(records)
    source.rewind()
    assert len(source.poll(max_records=7, timeout_s=0)) == 7
    source.close()
    end = frozen.bounds(INTERACTIONS)[0].end
    assert frozen.read(INTERACTIONS, 0, offset=end, max_records=5) == []
    with pytest.raises(EventLogError, match="frozen"):
        frozen.sink()
    with pytest.raises(EventLogError, match="frozen"):
        frozen.create_topics(TOPICS)
    assert frozen.retain(INTERACTIONS, {0: end}, now=log.clock) == 0
    frozen.close()


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An installation whose worker has closed everything."""
    path = tmp_path / "tidemill.toml"
    path.write_text(
        f'data = "{tmp_path}"\nmetrics = "{tmp_path / "metrics.toml"}"\n[ingest]\n'
        "close_grace_s = 0.1\nunmatched_after_s = 0.2\n"
    )
    (tmp_path / "metrics.toml").write_text(METRICS)
    database = Database(SharedSettings(data=tmp_path).database_url)
    upgrade(database)
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings())
    log.create_topics(TOPICS)
    append(log, *traffic(20))
    live_through(log, database)
    log.close()
    database.close()
    return path


def call(settings: Path, name: str, *arguments: str) -> Result:
    into = f"sqlite:///{settings.parent / name}"
    words = ["--settings", str(settings), "log", "replay", "--into", into, *arguments]
    return CliRunner().invoke(app, words)


def test_the_command_tells_equal_from_different(settings: Path) -> None:
    plain = call(settings, "a.db")
    assert plain.exit_code == 0
    assert "digest " in plain.stdout
    good = json.loads(call(settings, "b.db", "--compare", "--json").stdout)
    assert good["digest"] in plain.stdout
    assert good["comparison"]["differences"] == []
    assert "holds the same" in call(settings, "c.db", "--compare").stdout
    database = Database(SharedSettings(data=settings.parent).database_url)
    with database.transaction() as session:
        session.execute(update(ExperienceRow).values(digest="0" * 64))
    database.close()
    bad = call(settings, "d.db", "--compare")
    assert bad.exit_code == 1
    assert "differs: " in bad.stdout
    assert "20 interactions differ" in bad.stdout


def test_a_database_in_use_is_refused(settings: Path) -> None:
    own = call(settings, "tidemill.db").exception
    assert isinstance(own, ConfigurationError)
    assert "the installation's own database" in str(own)
    assert call(settings, "used.db").exit_code == 0
    used = call(settings, "used.db").exception
    assert isinstance(used, ConfigurationError)
    assert "is not fresh" in str(used)


def test_a_replay_that_was_killed_early_leaves_a_database_that_is_refused(
    settings: Path, tmp_path: Path
) -> None:
    fresh = Database(f"sqlite:///{tmp_path / 'half.db'}")
    upgrade(fresh)
    made = {
        "interaction_id": "i",
        "digest": "d",
        "judge": "j",
        "item": "i",
        "state": "answered",
        "scores": [1.0],
        "wanted_at": NOW,
        "gives_up_at": NOW,
        "due_at": NOW,
        "num_failures": 0,
    }
    with fresh.transaction() as session:
        # As far as it came: judges' answers are copied before the first record is read.
        session.add(JudgementRow(**made))
    fresh.close()
    refused = call(settings, "half.db").exception
    assert isinstance(refused, ConfigurationError)
    assert "is not fresh, it holds rows in judgements" in str(refused)


def test_another_installation_of_an_older_version_is_left_as_it_is(postgres_url: str) -> None:
    older = Database(postgres_url)
    upgrade(older)
    before = downgrade(older, "-1")
    with pytest.raises(ConfigurationError, match=f"holds tables of revision {before.current}"):
        prepare_fresh(older)
    assert fetch_state(older) == before
    older.close()


def test_a_database_of_another_program_gets_no_tables(postgres_url: str) -> None:
    theirs = Database(postgres_url)
    with theirs.transaction() as session:
        session.execute(text("CREATE TABLE shop (item int)"))
    with pytest.raises(ConfigurationError, match="it holds a table 'shop'"):
        prepare_fresh(theirs)
    assert inspect(theirs.engine).get_table_names() == ["shop"]
    theirs.close()
