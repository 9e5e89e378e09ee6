"""Invariant 8: nobody moves a batch by more than its declared share, however much they send."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.batching import BatchItem, choose_batch, max_items
from learner.replay import Queue
from learner.settings import LearnerSettings, ShareSettings
from learner.staleness import Limits
from tests.factories import NOW, make_experience, make_feedback, make_interaction
from tidemill.contracts.experience import Experience
from tidemill.storage.database import Database
from tidemill.storage.experiences import insert_experiences
from tidemill.storage.learning import fetch_drop_counts
from tidemill.storage.quarantine import (
    QuarantineKind,
    add_to_quarantine,
    remove_from_quarantine,
)
from tidemill.storage.tables import FeedbackRow

KINDS = ("subject", "rater", "tenant")


@pytest.fixture
def queue(any_database: Database) -> Queue:
    shares = ShareSettings(subject=0.25, rater=0.25)
    settings = LearnerSettings(batch_size=8, max_shares=shares)
    return Queue(any_database, "tide", "default", settings, Limits(260, 64))


def store(database: Database, experiences: list[Experience]) -> None:
    with database.transaction() as session:
        insert_experiences(session, experiences, created_at=NOW)


def rate(database: Database, experience: Experience, rater: str, offset: int) -> None:
    interaction = make_interaction(interaction_id=experience.experience_id)
    feedback = make_feedback(interaction, rater=rater)
    with database.transaction() as session:
        session.add(
            FeedbackRow(
                tenant="default",
                feedback_id=feedback.feedback_id,
                trajectory_id=feedback.trajectory_id,
                interaction_id=feedback.interaction_id,
                target_id=feedback.target_id,
                metric="accepted",
                value=True,
                source=feedback.source.value,
                rater=rater,
                body_digest=feedback.body_digest,
                state="joined",
                partition=0,
                log_offset=offset,
                appended_at=NOW,
                expires_at=NOW,
            )
        )


def test_a_flood_from_one_subject_gets_its_share_only(queue: Queue) -> None:
    # The flood is older than all others, so it stands first in the queue.
    flood = [make_experience(subject="loud") for _ in range(600)]
    others = [make_experience(subject=f"quiet-{number}") for number in range(6)]
    store(queue.database, flood)
    store(queue.database, others)
    chosen = Counter(experience.subject for experience in queue.choose(min_size=8))
    assert chosen["loud"] == 2
    assert chosen.total() == 8


def test_one_rater_behind_many_subjects_gets_its_share_only(queue: Queue) -> None:
    flood = [make_experience(subject=f"mask-{number}") for number in range(40)]
    store(queue.database, flood)
    for offset, experience in enumerate(flood):
        rate(queue.database, experience, "one-rater", offset)
    others = [make_experience(subject=f"quiet-{number}") for number in range(6)]
    store(queue.database, others)
    chosen = {experience.experience_id for experience in queue.choose(min_size=8)}
    assert len(chosen & {experience.experience_id for experience in flood}) == 2


def test_a_flood_alone_moves_nothing(queue: Queue) -> None:
    store(queue.database, [make_experience(subject="loud") for _ in range(100)])
    assert queue.choose(min_size=8) == []
    assert queue.choose(min_size=4) == []


def test_what_is_passed_over_stays_in_the_queue(queue: Queue) -> None:
    store(queue.database, [make_experience(subject="loud") for _ in range(10)])
    others = [make_experience(subject=f"quiet-{number}") for number in range(6)]
    store(queue.database, others)
    queue.choose(min_size=8)
    with queue.database.reading() as session:
        waiting = session.connection().exec_driver_sql(
            "select count(*) from experiences where state = 'ready' and num_uses = 0"
        )
        assert waiting.scalar() == 16


def put_away(database: Database, kind: QuarantineKind, who: str, tenant: str = "default") -> int:
    with database.transaction() as session:
        number = add_to_quarantine(
            session, tenant=tenant, kind=kind, who=who, reason="a bot", actor="operator", now=NOW
        )
    assert number is not None
    return number


@pytest.mark.parametrize(
    ("kind", "who"),
    [
        (QuarantineKind.RATER, "one-rater"),
        (QuarantineKind.SUBJECT, "mask"),
        (QuarantineKind.TENANT, "default"),
    ],
)
def test_who_is_in_quarantine_moves_nothing(queue: Queue, kind: QuarantineKind, who: str) -> None:
    bad = [make_experience(subject="mask") for _ in range(2)]
    store(queue.database, bad)
    for offset, experience in enumerate(bad):
        rate(queue.database, experience, "one-rater", offset)
    others = [make_experience(subject=f"quiet-{number}") for number in range(6)]
    store(queue.database, others)
    rate(queue.database, others[0], "another-rater", 10)
    begun = [experience.experience_id for experience in queue.choose(min_size=8)]
    assert len(begun) == 8
    put_away(queue.database, kind, who)
    left = set() if kind is QuarantineKind.TENANT else {one.experience_id for one in others}
    # The round that had begun goes on without them, and the next one never sees them.
    assert {one.experience_id for one in queue.fetch(begun)} == left
    assert {one.experience_id for one in queue.choose(min_size=2)} <= left
    with queue.database.reading() as session:
        dropped = fetch_drop_counts(session, model="tide", tenant="default")
    assert dropped == {"quarantined": 8 - len(left)}


def test_a_stay_that_ended_or_is_of_another_tenant_holds_nobody_back(queue: Queue) -> None:
    experiences = [make_experience(subject=f"quiet-{number}") for number in range(8)]
    store(queue.database, experiences)
    rate(queue.database, experiences[0], "one-rater", 0)
    number = put_away(queue.database, QuarantineKind.RATER, "one-rater")
    put_away(queue.database, QuarantineKind.SUBJECT, "quiet-1", tenant="other")
    with queue.database.transaction() as session:
        assert remove_from_quarantine(session, number, reason="no bot", actor="operator", now=NOW)
    assert len(queue.choose(min_size=8)) == 8


@given(
    whose=st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=40),
    shares=st.tuples(*[st.floats(0.05, 1.0)] * 3),
    max_size=st.integers(1, 16),
)
def test_no_batch_passes_a_share(
    whose: list[tuple[int, ...]], shares: tuple[float, ...], max_size: int
) -> None:
    items = [
        BatchItem(str(number), frozenset(zip(KINDS, map(str, keys), strict=True)))
        for number, keys in enumerate(whose)
    ]
    max_shares = dict(zip(KINDS, shares, strict=True))
    chosen = choose_batch(items, max_size=max_size, min_size=1, max_shares=max_shares)
    keys_of = {item.experience_id: item.keys for item in items}
    counts = Counter(key for experience_id in chosen for key in keys_of[experience_id])
    for (kind, _), number in counts.items():
        assert number <= max_items(max_shares[kind], len(chosen))
    assert len(set(chosen)) == len(chosen) <= max_size
