"""Late feedback revises what was trained on, on both databases, and a replay says the same."""

import threading
import time
from typing import Any

import pytest
from sqlalchemy import select, text

from ingest.settings import IngestSettings
from tests.factories import NOW, make_feedback, make_interaction, make_step
from tests.ingest_rig import Rig, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, InteractionServed
from tidemill.errors import FencedError
from tidemill.ledger import take_ledger
from tidemill.storage.database import Database
from tidemill.storage.interactions import fetch_closable
from tidemill.storage.learning import Uses, record_step
from tidemill.storage.quarantine import (
    QuarantineKind,
    add_to_quarantine,
    remove_from_quarantine,
)
from tidemill.storage.revisions import (
    DueRevision,
    fetch_due_revisions,
    fetch_revisable,
    mark_revisions_taken,
)
from tidemill.storage.tables import ExperienceRevisionRow, metadata

WHERE = {"model": "tide", "tenant": "default"}


@pytest.fixture
def rig(any_database: Database) -> Rig:
    return Rig(any_database)


def served(rig: Rig, *, at: float = 0, **over: Any) -> InteractionServed:
    """Serve an interaction that its user accepts in time."""
    interaction = make_interaction(**over)
    rig.log.put(interaction, seconds(at))
    rig.log.put(make_feedback(interaction), seconds(at + 1))
    return interaction


def deny(rig: Rig, interaction: InteractionServed, at: float, **over: Any) -> None:
    rig.log.put(make_feedback(interaction, value=False, **over), seconds(at))


def train_on(rig: Rig, *interactions: InteractionServed) -> None:
    ids = tuple(one.interaction_id for one in interactions)
    with rig.database.transaction() as session:
        record_step(session, make_step(), Uses("default", ids, 0, 1))


def due(rig: Rig) -> list[DueRevision]:
    with rig.database.reading() as session:
        return fetch_due_revisions(session, **WHERE)


def stored(database: Database) -> list[tuple[Any, ...]]:
    row = ExperienceRevisionRow
    query = select(
        row.tenant,
        row.experience_id,
        row.feedback_id,
        row.outcome,
        row.reward,
        row.components,
        row.log_offset,
        row.appended_at,
    ).order_by(row.experience_id, row.log_offset)
    with database.reading() as session:
        return [tuple(one) for one in session.execute(query)]


def test_what_was_trained_on_gets_a_revision_that_is_due(rig: Rig) -> None:
    interaction = served(rig)
    rig.run_to(seconds(61))
    train_on(rig, interaction)
    deny(rig, interaction, 100, feedback_id="late")
    rig.read()
    assert rig.state_of("late") == "late"
    (revision,) = due(rig)
    assert (revision.experience_id, revision.feedback_id) == (interaction.interaction_id, "late")
    assert (revision.reward, revision.components) == (0.0, {"accepted": 0.0})
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1.0
    taken = take_ledger(rig.database, rig.log)
    assert taken.revisions == {"due": 1, "taken": 0, "idle": 0}
    assert taken.feedback["late"] == 1
    assert taken.is_balanced


def test_what_was_not_trained_on_is_due_once_it_is(rig: Rig) -> None:
    interaction = served(rig)
    rig.run_to(seconds(61))
    deny(rig, interaction, 100)
    rig.read()
    assert due(rig) == []
    assert take_ledger(rig.database, rig.log).revisions["idle"] == 1
    train_on(rig, interaction)
    assert [one.reward for one in due(rig)] == [0.0]


def test_the_newest_revision_is_taken_with_those_before_it_and_once(rig: Rig) -> None:
    interaction = served(rig)
    rig.run_to(seconds(61))
    train_on(rig, interaction)
    deny(rig, interaction, 100, feedback_id="first")
    rig.log.put(make_feedback(interaction, feedback_id="second"), seconds(101))
    rig.read()
    assert len(stored(rig.database)) == 2
    revisions = due(rig)
    assert [(one.feedback_id, one.reward) for one in revisions] == [("second", 1.0)]
    take: dict[str, Any] = {"tenant": "default", "learner": "tide/default", "now": NOW}
    with rig.database.transaction() as session:
        mark_revisions_taken(session, revisions, **take)
    assert due(rig) == []
    assert take_ledger(rig.database, rig.log).revisions == {"due": 0, "taken": 2, "idle": 0}
    with (
        pytest.raises(FencedError, match="taken up by somebody else"),
        rig.database.transaction() as session,
    ):
        mark_revisions_taken(session, revisions, **take)


def test_what_a_taken_revision_outdates_is_told_by_time_where_a_broker_clock_went_back(
    rig: Rig,
) -> None:
    interaction = served(rig)
    rig.run_to(seconds(61))
    train_on(rig, interaction)
    deny(rig, interaction, 110, feedback_id="newest")
    # As after a change of leaders: a later offset with an earlier append time.
    record = rig.log.put(make_feedback(interaction, metric="stars", value=1.0))
    place = record.topic_partition
    rig.log.partitions[place][-1] = record._replace(appended_at=seconds(100))
    rig.read()
    assert len(stored(rig.database)) == 2
    revisions = due(rig)
    assert [one.feedback_id for one in revisions] == ["newest"]
    with rig.database.transaction() as session:
        mark_revisions_taken(session, revisions, tenant="default", learner="tide/default", now=NOW)
    assert due(rig) == []


def test_nobody_in_quarantine_revises_anything(rig: Rig) -> None:
    interaction = served(rig)
    rig.run_to(seconds(61))
    train_on(rig, interaction)
    deny(rig, interaction, 100, rater="bot")
    rig.log.put(make_feedback(interaction, rater="other"), seconds(101))
    rig.read()
    with rig.database.transaction() as session:
        number = add_to_quarantine(
            session,
            tenant="default",
            kind=QuarantineKind.RATER,
            who="bot",
            reason="a bot",
            actor="operator",
            now=NOW,
        )
    assert number is not None
    assert due(rig) == []
    assert len(stored(rig.database)) == 2
    with rig.database.transaction() as session:
        assert remove_from_quarantine(session, number, reason="no", actor="operator", now=NOW)
    assert len(due(rig)) == 1


def test_late_for_one_turn_and_in_time_for_the_next(rig: Rig) -> None:
    first = served(rig)
    second = served(rig, at=90, trajectory_id=first.trajectory_id, turn=1)
    rig.run_to(seconds(80))
    solved = make_feedback(
        first, feedback_id="s", metric="solved", value=False, interaction_id=None
    )
    rig.log.put(solved, seconds(95))
    rig.run_to(seconds(160))
    assert rig.state_of("s") == "joined"
    assert [row[1:5] for row in stored(rig.database)] == [
        (first.interaction_id, "s", "rewarded", 0.5)
    ]
    experience = rig.experience(second.interaction_id)
    assert experience is not None
    assert experience.reward == 0.5


def test_nothing_is_revised_without_an_experience_or_by_another_tenant(rig: Rig) -> None:
    silent = make_interaction()
    rig.log.put(silent, seconds(0))
    private = served(rig, consent_train=False)
    other = served(rig)
    rig.run_to(seconds(61))
    for interaction in (silent, private):
        deny(rig, interaction, 100)
    deny(rig, other, 101, tenant="other")
    rig.read()
    assert stored(rig.database) == []


def conversation(log: MemoryLog) -> None:
    """Answers late, again and again, for turns of one trajectory and of others."""
    first = make_interaction()
    log.put(first, seconds(0))
    second = make_interaction(trajectory_id=first.trajectory_id, turn=1)
    log.put(second, seconds(70))
    alone = make_interaction(subject=None)
    log.put(alone, seconds(5))
    for number, (target, at) in enumerate(
        (
            (first, 10),
            (second, 75),
            (alone, 6),
            (first, 65),
            (first, 66),
            (alone, 300),
            (alone, 5e3),
        )
    ):
        said = make_feedback(
            target, value=number % 2 == 0, rater=f"r{number % 2}", feedback_id=f"f{number}"
        )
        log.put(said, seconds(at))
    for at in (62, 100, 140):
        solved = make_feedback(
            first, metric="solved", value=at != 100, interaction_id=None, feedback_id=f"s{at}"
        )
        log.put(solved, seconds(at))


@pytest.mark.parametrize("first_topic", [None, INTERACTIONS, FEEDBACK])
def test_a_replay_in_any_order_makes_the_same_revisions(
    any_database: Database, tmp_path: Any, first_topic: str | None
) -> None:
    log = MemoryLog()
    conversation(log)
    # Live, one record at a time, and whatever is due is closed in between; again, all at once.
    live = Rig(
        any_database,
        log=log,
        settings=IngestSettings(close_grace_s=0, unmatched_after_s=600, poll_records=1),
    )
    again_database = Database(f"sqlite:///{tmp_path / 'again.db'}")
    metadata.create_all(again_database.engine)
    again = Rig(again_database, log=log)
    while live.worker.read_once(timeout_s=0):
        live.close_at(seconds(10_000))
    live.run_to(seconds(10_000))
    if first_topic is not None:
        again.read(only=first_topic)
    again.run_to(seconds(10_000))
    assert len(stored(live.database)) >= 3
    assert stored(again.database) == stored(live.database)
    again_database.close()


def test_late_feedback_and_the_closing_of_its_interaction_wait_for_each_other(
    postgres_database: Database,
) -> None:
    rig = Rig(postgres_database)
    interaction = served(rig)
    rig.read()
    found: list[str] = []

    def store_late() -> None:
        with postgres_database.transaction() as session:
            for one in fetch_revisable(
                session, tenant="default", target_ids={interaction.interaction_id}
            ):
                found.append(one.experience.experience_id)

    storing = threading.Thread(target=store_late)
    place = rig.interaction(interaction.interaction_id).partition
    with postgres_database.transaction() as session:
        rows = fetch_closable(session, partitions={place: seconds(100)}, limit=10)
        assert [row.interaction_id for row in rows] == [interaction.interaction_id]
        storing.start()
        wait_for_a_waiting_lock(postgres_database)
        rig.worker._closer._close(session, rows)
    storing.join(30)
    assert found == [interaction.interaction_id]


def wait_for_a_waiting_lock(database: Database) -> None:
    deadline = time.monotonic() + 30
    query = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while time.monotonic() < deadline:
        with database.reading() as session:
            if session.scalar(query):
                return
    pytest.fail("nobody waits for the lock")
