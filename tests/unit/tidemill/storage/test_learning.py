from dataclasses import replace
from datetime import timedelta

import pytest

from tests.factories import NOW, VERSION, make_experience, make_feedback, make_step
from tidemill.contracts.events import FeedbackReceived
from tidemill.contracts.experience import Experience, Origin
from tidemill.errors import FencedError, StorageError
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience_counts, insert_experiences
from tidemill.storage.feedback import NewFeedback, insert_feedback
from tidemill.storage.learning import (
    Uses,
    drop_experiences,
    drop_versions,
    fetch_drop_counts,
    fetch_experiences_by_id,
    fetch_last_step,
    fetch_moves_after,
    fetch_queue,
    fetch_ready_versions,
    fetch_recent_experiences,
    fetch_steps,
    fetch_use_counts,
    record_step,
)

WHERE = {"model": "tide", "tenant": "default"}


def store(database: Database, *experiences: Experience) -> list[str]:
    with database.transaction() as session:
        for index, experience in enumerate(experiences):
            insert_experiences(session, [experience], created_at=NOW + timedelta(seconds=index))
    return [experience.experience_id for experience in experiences]


def queue_of(database: Database, max_per_subject: int = 10) -> list[str]:
    with database.reading() as session:
        entries = fetch_queue(session, **WHERE, max_per_subject=max_per_subject, limit=100)
    return [entry.experience_id for entry in entries]


def joined(event: FeedbackReceived, *, offset: int) -> NewFeedback:
    return NewFeedback(
        event=event,
        document=b"",
        partition=0,
        offset=offset,
        appended_at=NOW,
        expires_at=NOW,
        state="joined",
    )


def counts(database: Database) -> dict[str, int]:
    with database.reading() as session:
        return fetch_experience_counts(session, **WHERE)


def test_the_queue_is_oldest_first_and_bounded_for_each_subject(any_database: Database) -> None:
    ids = store(
        any_database,
        *[make_experience(subject="a") for _ in range(3)],
        make_experience(subject="b"),
        # Without a subject each trajectory stands for itself.
        make_experience(subject=None),
        make_experience(subject=None),
        make_experience(tenant="other"),
        make_experience(origin=Origin.SIMULATED),
    )
    assert queue_of(any_database) == ids[:6]
    assert queue_of(any_database, max_per_subject=2) == [*ids[:2], *ids[3:6]]


def test_a_step_and_its_uses_are_one_transaction(any_database: Database) -> None:
    ids = tuple(store(any_database, make_experience(), make_experience()))
    with any_database.transaction() as session:
        record_step(session, make_step(1), Uses("default", ids, num_before=0, num_declared=2))
    assert counts(any_database) == {"ready": 2, "used": 0, "dropped": 0}
    assert queue_of(any_database) == []
    with any_database.transaction() as session:
        record_step(session, make_step(2), Uses("default", ids, num_before=1, num_declared=2))
    assert counts(any_database) == {"ready": 0, "used": 2, "dropped": 0}
    with any_database.reading() as session:
        assert fetch_use_counts(session, "tide/default") == dict.fromkeys(ids, 2)
        last = fetch_last_step(session, "tide/default")
        assert last is not None
        assert (last.serial, last.metrics, last.finished_at) == (2, {"loss": 0.5}, NOW)
        assert [row.serial for row in fetch_steps(session, "tide/default", limit=1)] == [2]
        assert fetch_last_step(session, "another") is None


@pytest.mark.parametrize("num_before", [0, 2])
def test_a_use_that_was_counted_otherwise_is_fenced_as_a_whole(
    any_database: Database, num_before: int
) -> None:
    ids = tuple(store(any_database, make_experience(), make_experience()))
    with any_database.transaction() as session:
        record_step(session, make_step(1), Uses("default", ids[:1], num_before=0, num_declared=3))
    with pytest.raises(FencedError), any_database.transaction() as session:
        record_step(
            session, make_step(2), Uses("default", ids, num_before=num_before, num_declared=3)
        )
    with any_database.reading() as session:
        assert fetch_use_counts(session, "tide/default") == {ids[0]: 1}
        assert len(fetch_steps(session, "tide/default")) == 1


def test_a_serial_is_written_once(any_database: Database) -> None:
    with any_database.transaction() as session:
        record_step(session, make_step(1))
    with pytest.raises(StorageError), any_database.transaction() as session:
        record_step(session, make_step(1, step=99))
    with any_database.reading() as session:
        assert [row.step for row in fetch_steps(session, "tide/default")] == [1]


def test_drops_have_a_reason_and_are_counted(any_database: Database) -> None:
    old = "v9-999999999999"
    ids = store(
        any_database,
        make_experience(),
        make_experience(policy_version=old),
        make_experience(policy_version=old),
        make_experience(),
    )
    with any_database.reading() as session:
        assert fetch_ready_versions(session, **WHERE) == sorted([VERSION, old])
    with any_database.transaction() as session:
        assert drop_versions(session, [old], "stale", **WHERE) == 2
        assert drop_versions(session, [], "stale", **WHERE) == 0
        assert drop_experiences(session, dict.fromkeys(ids[:2], "pinned"), tenant="default") == 1
    with any_database.reading() as session:
        assert fetch_drop_counts(session, **WHERE) == {"stale": 2, "pinned": 1}
        assert fetch_experiences_by_id(session, ids, tenant="default").keys() == {ids[3]}
        recent = fetch_recent_experiences(session, **WHERE, limit=2)
    found = [experience.experience_id for experience in recent]
    assert len(found) == 2
    assert set(found) < set(ids)
    assert counts(any_database) == {"ready": 1, "used": 0, "dropped": 3}


def test_more_ids_than_one_statement_takes(any_database: Database) -> None:
    first = make_experience()
    many = [replace(first, experience_id=f"{number:05d}") for number in range(1200)]
    with any_database.transaction() as session:
        insert_experiences(session, many, created_at=NOW)
    ids = tuple(experience.experience_id for experience in many)
    with any_database.transaction() as session:
        record_step(session, make_step(1), Uses("default", ids, num_before=0, num_declared=1))
    assert counts(any_database)["used"] == 1200


def test_without_moves_there_is_nothing_to_look_at(any_database: Database) -> None:
    with any_database.reading() as session:
        assert fetch_moves_after(session, 0, **WHERE) == []


def test_an_experience_of_another_tenant_with_this_id_stays_as_it_is(
    any_database: Database,
) -> None:
    ours = make_experience()
    theirs = replace(ours, tenant="other")
    store(any_database, ours, theirs)
    with any_database.transaction() as session:
        for tenant, rater in (("default", "friend"), ("other", "stranger")):
            event = make_feedback(
                tenant=tenant,
                interaction_id=ours.experience_id,
                trajectory_id=ours.trajectory_id,
                rater=rater,
            )
            insert_feedback(session, [joined(event, offset=len(rater))])
        (entry,) = fetch_queue(session, **WHERE, max_per_subject=9, limit=9)
        assert entry.raters == ("friend",)
        record_step(session, make_step(1), Uses("default", (ours.experience_id,), 0, 1))
    with any_database.transaction() as session:
        found = fetch_experiences_by_id(session, [ours.experience_id], tenant="other")
        assert list(found.values()) == [theirs]
        assert fetch_use_counts(session, "tide/other") == {}
        gone = {ours.experience_id: "pinned"}
        assert drop_experiences(session, gone, tenant="default") == 0
        assert drop_experiences(session, gone, tenant="other") == 1
    assert counts(any_database) == {"ready": 0, "used": 1, "dropped": 0}
