"""Dead letters replayed and dropped, on both databases; every feedback stays accounted for."""

import time
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import update

from ingest.letters import Clerk, Ending, Handled
from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import NOW, make_feedback, make_interaction
from tests.ingest_rig import METRICS, Rig, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import EventLog
from tidemill.lag import TOPICS_CONSUMED, measure_lag
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.dead_letters import (
    LetterPlace,
    LetterQuery,
    fetch_dead_letters,
    find_dead_letters,
)
from tidemill.storage.experiences import fetch_experience_digests
from tidemill.storage.feedback import fetch_feedback
from tidemill.storage.tables import DeadLetterRow, metadata

MORE_METRICS = METRICS + '\n[metrics.kept]\ntype = "bool"\nwindow_s = 60\noptional = true\n'


@pytest.fixture
def rig(any_database: Database) -> Rig:
    return Rig(any_database)


def letters(rig: Rig) -> list[DeadLetterRow]:
    with rig.database.reading() as session:
        return find_dead_letters(session, LetterQuery(state=None))


def place_of(row: DeadLetterRow) -> LetterPlace:
    return LetterPlace(row.topic, row.partition, row.log_offset)


def replay(rig: Rig, row: DeadLetterRow, at: datetime) -> Handled:
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="ada")
    rig.log.clock = at
    return clerk.replay(place_of(row), rig.log.sink(), now=at)


def check_accounts(rig: Rig, *, accepted: int) -> None:
    """Check acked = joined + superseded + pending + late + dead-lettered + erased, and the sums."""
    taken = take_ledger(rig.database, rig.log)
    assert taken.problems == []
    states = {name: count for name, count in taken.feedback.items() if name != "dead_lettered"}
    dead = taken.letters["open"] + taken.letters["dropped"]
    waiting = taken.records[FEEDBACK]["waiting"]
    assert sum(states.values()) + dead + waiting == accepted


def expired_feedback(rig: Rig) -> tuple[str, DeadLetterRow]:
    """Let feedback expire, then let its interaction come; return the interaction's id."""
    interaction = make_interaction()
    rig.log.put(make_feedback(interaction, feedback_id="f"), seconds(0))
    rig.run_to(seconds(601))
    assert rig.state_of("f") == "dead_lettered"
    rig.log.put(interaction, seconds(700))
    rig.read()
    assert rig.state_of("f") == "dead_lettered"
    (row,) = letters(rig)
    return interaction.interaction_id, row


def test_expired_feedback_is_replayed_once_its_interaction_is_there(rig: Rig) -> None:
    interaction_id, row = expired_feedback(rig)
    check_accounts(rig, accepted=1)
    done = replay(rig, row, seconds(720))
    assert done.ending is Ending.REPLAYED
    # Appended, and not read yet.
    check_accounts(rig, accepted=1)
    rig.run_to(seconds(800))
    check_accounts(rig, accepted=1)
    assert rig.state_of("f") == "joined"
    experience = rig.experience(interaction_id)
    assert experience is not None
    assert experience.components == {"accepted": 1.0}
    (closed,) = letters(rig)
    assert (closed.state, closed.closed_by, closed.closed_at) == ("replayed", "ada", seconds(720))
    assert closed.owns_record
    assert closed.closed_reason == done.detail
    assert replay(rig, row, seconds(900)).ending is Ending.REFUSED


def test_expired_feedback_without_its_interaction_is_not_replayed(rig: Rig) -> None:
    rig.log.put(make_feedback(feedback_id="f"), seconds(0))
    rig.run_to(seconds(601))
    (row,) = letters(rig)
    refused = replay(rig, row, seconds(650))
    assert (refused.ending, "still unmatched" in refused.detail) == (Ending.REFUSED, True)
    assert rig.read() == 0
    check_accounts(rig, accepted=1)


def test_a_replay_after_the_window_is_late_and_changes_nothing(rig: Rig) -> None:
    interaction_id, row = expired_feedback(rig)
    rig.close_at(seconds(800))
    assert rig.interaction(interaction_id).excluded_reason == "silent"
    assert replay(rig, row, seconds(900)).ending is Ending.REPLAYED
    rig.run_to(seconds(1000))
    assert rig.state_of("f") == "late"
    check_accounts(rig, accepted=1)


def test_a_declared_metric_brings_its_feedback_back(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, feedback_id="k", metric="kept"), seconds(1))
    rig.log.put(make_feedback(interaction, feedback_id="a"), seconds(2))
    rig.read()
    (row,) = letters(rig)
    refused = replay(rig, row, seconds(3))
    assert (refused.ending, "unknown_metric" in refused.detail) == (Ending.REFUSED, True)
    again = Rig(rig.database, rig.log, metrics=parse_metrics(MORE_METRICS))
    assert replay(again, row, seconds(4)).ending is Ending.REPLAYED
    check_accounts(rig, accepted=2)
    again.run_to(seconds(100))
    check_accounts(rig, accepted=2)
    experience = again.experience(interaction.interaction_id)
    assert experience is not None
    assert set(experience.components) == {"accepted", "kept"}


def test_a_crash_between_append_and_mark_doubles_nothing(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, feedback_id="k", metric="kept"), seconds(1))
    rig.read()
    (row,) = letters(rig)
    again = Rig(rig.database, rig.log, metrics=parse_metrics(MORE_METRICS))
    replay(again, row, seconds(2))
    with rig.database.transaction() as session:
        session.execute(update(DeadLetterRow).values(state="open", closed_at=None, closed_by=None))
    again.read()
    assert replay(again, row, seconds(3)).ending is Ending.REPLAYED
    again.read()
    assert again.state_of("k") == "joined"
    assert len(again.duplicates()) == 1
    check_accounts(again, accepted=1)


def test_what_cannot_be_repaired_is_not_replayed(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(interaction.model_copy(update={"turn": 3}), seconds(1))
    rig.log.put(make_feedback(interaction, feedback_id="f", body_digest="a"), seconds(2))
    rig.log.put(make_feedback(interaction, feedback_id="f", body_digest="b"), seconds(3))
    for topic in (INTERACTIONS, FEEDBACK):
        rig.log.put_bytes(topic, "k", b"junk", seconds(4))
    rig.read()
    found = letters(rig)
    assert [row.reason for row in found] == ["conflicting_body"] * 2 + ["undecodable"] * 2
    for row in found:
        assert replay(rig, row, seconds(5)).ending is Ending.REFUSED
    assert rig.read() == 0


def test_a_record_under_a_wrong_key_is_repaired_by_its_replay(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put_bytes(INTERACTIONS, "another", encode(interaction), seconds(0))
    rig.read()
    (row,) = letters(rig)
    assert replay(rig, row, seconds(1)).ending is Ending.REPLAYED
    rig.read()
    assert rig.interaction(interaction.interaction_id).appended_at == seconds(1.001)
    assert take_ledger(rig.database, rig.log).problems == []


def test_a_dropped_letter_stays_accounted_for(rig: Rig) -> None:
    rig.log.put_bytes(FEEDBACK, "k", b"junk", seconds(0))
    rig.read()
    (row,) = letters(rig)
    clerk = Clerk(database=rig.database, metrics=rig.worker.metrics, actor="ada")
    dropped = clerk.drop(place_of(row), reason="a test of mine", now=seconds(9))
    assert dropped.ending is Ending.DROPPED
    (closed,) = letters(rig)
    assert (closed.state, closed.closed_by, closed.closed_reason, closed.closed_at) == (
        *("dropped", "ada", "a test of mine"),
        seconds(9),
    )
    check_accounts(rig, accepted=1)
    again = clerk.drop(place_of(row), reason="again", now=seconds(10))
    assert (again.ending, "dropped already" in again.detail) == (Ending.REFUSED, True)
    nowhere = clerk.drop(LetterPlace(FEEDBACK, 0, 99), reason="again", now=seconds(10))
    assert nowhere.ending is Ending.REFUSED


def test_a_letter_is_replayed_through_either_log(any_log: EventLog, any_database: Database) -> None:
    any_log.create_topics((INTERACTIONS, FEEDBACK))
    interaction = make_interaction()
    feedback = make_feedback(
        interaction, feedback_id=f"k-{interaction.trajectory_id}", metric="kept"
    )
    sink = any_log.sink()
    sink.append(INTERACTIONS, interaction.key, encode(interaction)).result(20)
    sink.append(FEEDBACK, feedback.key, encode(feedback)).result(20)

    def work(metrics: str) -> list[DeadLetterRow]:
        member = Member(any_database, any_log, IngestSettings(), parse_metrics(metrics))
        deadline = time.monotonic() + 20
        while sum(unread()) and time.monotonic() < deadline:
            member.read_once(timeout_s=0.2)
        member.close()
        with any_database.reading() as session:
            tenant, record_id = feedback.tenant, feedback.feedback_id
            return fetch_dead_letters(session, tenant=tenant, record_id=record_id)

    def unread() -> list[int]:
        lags = measure_lag(any_database, any_log, TOPICS_CONSUMED, group="ingest", now=NOW)
        return [lag.lag_records or 0 for lag in lags]

    (row,) = work(METRICS)
    clerk = Clerk(database=any_database, metrics=parse_metrics(MORE_METRICS), actor="ada")
    assert clerk.replay(place_of(row), sink, now=NOW).ending is Ending.REPLAYED
    sink.close()
    (row,) = work(MORE_METRICS)
    assert row.state == "replayed"
    with any_database.reading() as session:
        stored = fetch_feedback(session, tenant="default", feedback_id=feedback.feedback_id)
    assert stored is not None
    assert stored.state == "joined"
    assert take_ledger(any_database, any_log).problems == []


def test_feedback_that_comes_again_by_itself_lives_again(rig: Rig) -> None:
    interaction = make_interaction()
    feedback = make_feedback(interaction, feedback_id="f")
    rig.log.put(feedback, seconds(0))
    rig.run_to(seconds(601))
    rig.log.put(feedback, seconds(650))
    rig.read()
    assert rig.state_of("f") == "pending"
    rig.log.put(interaction, seconds(700))
    rig.run_to(seconds(800))
    assert rig.state_of("f") == "joined"
    assert [row.state for row in letters(rig)] == ["returned"]
    check_accounts(rig, accepted=1)


@pytest.mark.parametrize("first", [INTERACTIONS, FEEDBACK])
@pytest.mark.parametrize(
    ("repeats", "served"),
    [([650], 700), ([650], 600), ([650, 660, 1300], 1310), ([50, 650], 640), ([650, 1300], 5000)],
)
def test_the_order_of_reading_decides_nothing(
    rig: Rig, tmp_path: Path, first: str, repeats: list[float], served: float
) -> None:
    interaction = make_interaction()
    feedback = make_feedback(interaction, feedback_id="f")
    events = [(0.0, feedback), (served, interaction), *((at, feedback) for at in repeats)]
    # Live: each is read, and whatever is due is closed, as it comes.
    for at, event in sorted(events, key=lambda one: one[0]):
        rig.close_at(seconds(at - 0.5))
        rig.log.put(event, seconds(at))
        rig.read()
    rig.close_at(seconds(10_000))
    rig.close_at(seconds(10_000))
    fresh = Database(f"sqlite:///{tmp_path / 'fresh.db'}")
    metadata.create_all(fresh.engine)
    replayed = Rig(fresh, rig.log, settings=IngestSettings(close_grace_s=0, unmatched_after_s=600))
    replayed.read(only=first)
    replayed.read()
    for _ in repeats:
        replayed.close_at(seconds(10_000))
    assert outcome(rig) == outcome(replayed)
    fresh.close()


def outcome(rig: Rig) -> tuple[object, ...]:
    assert isinstance(rig.log, MemoryLog)
    check_accounts(rig, accepted=1)
    with rig.database.reading() as session:
        digests = fetch_experience_digests(session)
    return (
        digests,
        rig.state_of("f"),
        [(row.log_offset, row.state, row.owns_record) for row in letters(rig)],
        [row.log_offset for row in rig.duplicates()],
    )
