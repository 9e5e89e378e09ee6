"""What the learner asks of the database: its queue, its steps, and how often each row was used.

A learner reads its queue freely and claims at the end: in the transaction of its step it locks the
batch's rows and checks that nobody used, dropped or erased one meanwhile.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, or_, select, update
from sqlalchemy.orm import Session

from tidemill.contracts.experience import Experience, Origin
from tidemill.errors import FencedError
from tidemill.storage.experiences import DROPPED, READY, USED, to_experience
from tidemill.storage.tables import (
    ExperienceRow,
    ExperienceUseRow,
    FeedbackRow,
    LearnerStepRow,
    PolicyTransitionRow,
)

_CHUNK = 500
"""Ids in one statement: SQLite bounds the number of parameters."""


@dataclass(frozen=True, slots=True)
class QueueEntry:
    """One experience that waits for its first use, without its tokens."""

    experience_id: str
    trajectory_id: str
    subject: str | None
    tenant: str
    oldest_policy_version: str
    raters: tuple[str, ...]
    """Who gave the feedback in its reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One optimiser step, or one reset, as it goes into the database."""

    learner: str
    serial: int
    step: int
    lineage: int
    origin: str
    """live, simulated or reset."""
    parent_version: str | None
    checkpoint: str | None
    checkpoint_digest: str | None
    metrics: Mapping[str, Any]
    finished_at: datetime


@dataclass(frozen=True, slots=True)
class Uses:
    """The experiences that a step uses, all for the same time."""

    tenant: str
    experience_ids: tuple[str, ...]
    num_before: int
    """How often each was used before this step."""
    num_declared: int
    """How often each is used in all."""


def fetch_ready_versions(session: Session, *, model: str, tenant: str) -> list[str]:
    """Return the oldest generating versions of all experiences that wait for their first use."""
    query = select(ExperienceRow.oldest_policy_version).where(*_waiting(model, tenant)).distinct()
    return sorted(session.scalars(query))


def fetch_queue(
    session: Session, *, model: str, tenant: str, max_per_subject: int, limit: int
) -> list[QueueEntry]:
    """Return waiting experiences, oldest first, at most so many of each subject.

    An experience without a subject counts for its trajectory.
    """
    whose = func.coalesce(ExperienceRow.subject, ExperienceRow.trajectory_id)
    order = (ExperienceRow.closed_at, ExperienceRow.experience_id)
    rank = func.row_number().over(partition_by=whose, order_by=order).label("rank")
    ranked = (
        select(
            ExperienceRow.experience_id,
            ExperienceRow.trajectory_id,
            ExperienceRow.subject,
            ExperienceRow.tenant,
            ExperienceRow.oldest_policy_version,
            ExperienceRow.closed_at,
            rank,
        )
        .where(*_waiting(model, tenant))
        .subquery()
    )
    query = (
        select(ranked)
        .where(ranked.c.rank <= max_per_subject)
        .order_by(ranked.c.closed_at, ranked.c.experience_id)
        .limit(limit)
    )
    rows = session.execute(query).all()
    targets = [(row.experience_id, row.trajectory_id) for row in rows]
    raters = _fetch_raters(session, tenant, targets)
    return [
        QueueEntry(
            experience_id=row.experience_id,
            trajectory_id=row.trajectory_id,
            subject=row.subject,
            tenant=row.tenant,
            oldest_policy_version=row.oldest_policy_version,
            raters=tuple(sorted(raters.get(row.experience_id, ()))),
        )
        for row in rows
    ]


def fetch_experiences_by_id(
    session: Session, ids: Sequence[str], *, tenant: str
) -> dict[str, Experience]:
    """Return the experiences that are ready, by id; used, dropped and erased ones are absent."""
    found: dict[str, Experience] = {}
    for chunk in _chunks(ids):
        query = select(ExperienceRow).where(*_are(chunk, tenant), ExperienceRow.state == READY)
        found |= {row.experience_id: to_experience(row) for row in session.scalars(query)}
    return found


def fetch_recent_experiences(
    session: Session, *, model: str, tenant: str, limit: int
) -> list[Experience]:
    """Return the newest live experiences, newest first, in any state."""
    query = (
        select(ExperienceRow)
        .where(
            ExperienceRow.model == model,
            ExperienceRow.tenant == tenant,
            ExperienceRow.origin == Origin.LIVE.value,
        )
        .order_by(ExperienceRow.closed_at.desc(), ExperienceRow.experience_id)
        .limit(limit)
    )
    return [to_experience(row) for row in session.scalars(query)]


def drop_experiences(session: Session, reasons: Mapping[str, str], *, tenant: str) -> int:
    """Mark ready experiences as dropped, each with its reason; return how many were."""
    num_dropped = 0
    for reason in sorted(set(reasons.values())):
        ids = sorted(key for key, value in reasons.items() if value == reason)
        for chunk in _chunks(ids):
            num_dropped += _drop(session, reason, *_are(chunk, tenant))
    return num_dropped


def drop_versions(
    session: Session, versions: Collection[str], reason: str, *, model: str, tenant: str
) -> int:
    """Mark every waiting experience of these oldest versions as dropped; return how many."""
    if not versions:
        return 0
    are_of_versions = ExperienceRow.oldest_policy_version.in_(sorted(versions))
    return _drop(session, reason, are_of_versions, *_waiting(model, tenant))


def record_step(session: Session, record: StepRecord, uses: Uses | None = None) -> None:
    """Write a step and the uses of its batch; both become durable together.

    Raises:
        FencedError: a row of the batch was used, dropped, erased or locked by someone else.
        sqlalchemy.exc.IntegrityError: another process of this learner wrote this serial first
            (a `StorageError` outside the transaction).
    """
    row = LearnerStepRow(
        learner=record.learner,
        serial=record.serial,
        step=record.step,
        lineage=record.lineage,
        origin=record.origin,
        parent_version=record.parent_version,
        checkpoint=record.checkpoint,
        checkpoint_digest=record.checkpoint_digest,
        metrics=dict(record.metrics),
        finished_at=record.finished_at,
    )
    session.add(row)
    session.flush()
    if uses is not None:
        _claim(session, uses)
        session.add_all(
            ExperienceUseRow(
                experience_id=experience_id,
                learner=record.learner,
                serial=record.serial,
                tenant=uses.tenant,
            )
            for experience_id in uses.experience_ids
        )
        session.flush()


def fetch_last_step(session: Session, learner: str) -> LearnerStepRow | None:
    """Return a learner's newest step; None = it never made one."""
    query = (
        select(LearnerStepRow)
        .where(LearnerStepRow.learner == learner)
        .order_by(LearnerStepRow.serial.desc())
        .limit(1)
    )
    return session.scalar(query)


def fetch_steps(session: Session, learner: str, *, limit: int = 1000) -> list[LearnerStepRow]:
    """Return a learner's newest steps, oldest of them first."""
    query = (
        select(LearnerStepRow)
        .where(LearnerStepRow.learner == learner)
        .order_by(LearnerStepRow.serial.desc())
        .limit(limit)
    )
    return list(session.scalars(query))[::-1]


def fetch_use_counts(session: Session, learner: str) -> dict[str, int]:
    """Return how many steps of a learner used each experience."""
    query = (
        select(ExperienceUseRow.experience_id, func.count())
        .where(ExperienceUseRow.learner == learner)
        .group_by(ExperienceUseRow.experience_id)
    )
    return dict(session.execute(query).all())


def fetch_drop_counts(session: Session, *, model: str, tenant: str) -> dict[str, int]:
    """Return how many experiences were dropped, by reason."""
    query = (
        select(ExperienceRow.dropped_reason, func.count())
        .where(
            ExperienceRow.model == model,
            ExperienceRow.tenant == tenant,
            ExperienceRow.state == DROPPED,
        )
        .group_by(ExperienceRow.dropped_reason)
    )
    return {reason or "": number for reason, number in session.execute(query)}


def fetch_moves_after(
    session: Session, transition_id: int, *, model: str, tenant: str
) -> list[tuple[int, str, str]]:
    """Return (id, version, move) of the registry's moves after one, in their order."""
    query = (
        select(PolicyTransitionRow.id, PolicyTransitionRow.version, PolicyTransitionRow.move)
        .where(
            PolicyTransitionRow.model == model,
            PolicyTransitionRow.tenant == tenant,
            PolicyTransitionRow.id > transition_id,
        )
        .order_by(PolicyTransitionRow.id)
    )
    return list(session.execute(query))


def _waiting(model: str, tenant: str) -> tuple[Any, ...]:
    return (
        ExperienceRow.model == model,
        ExperienceRow.tenant == tenant,
        ExperienceRow.origin == Origin.LIVE.value,
        ExperienceRow.state == READY,
        ExperienceRow.num_uses == 0,
    )


def _are(ids: Sequence[str], tenant: str) -> tuple[Any, ...]:
    return (ExperienceRow.experience_id.in_(ids), ExperienceRow.tenant == tenant)


def _fetch_raters(
    session: Session, tenant: str, targets: Sequence[tuple[str, str]]
) -> dict[str, set[str]]:
    by_target: dict[str, set[str]] = {}
    for chunk in _chunks(sorted({name for pair in targets for name in pair})):
        query = select(FeedbackRow.target_id, FeedbackRow.rater).where(
            FeedbackRow.tenant == tenant,
            FeedbackRow.target_id.in_(chunk),
            FeedbackRow.rater.is_not(None),
            or_(FeedbackRow.state == "joined", FeedbackRow.state == "superseded"),
        )
        for target_id, rater in session.execute(query):
            by_target.setdefault(target_id, set()).add(rater or "")
    return {
        experience_id: by_target.get(experience_id, set()) | by_target.get(trajectory_id, set())
        for experience_id, trajectory_id in targets
    }


def _drop(session: Session, reason: str, *conditions: Any) -> int:
    statement = (
        update(ExperienceRow)
        .where(*conditions, ExperienceRow.state == READY)
        .values(state=DROPPED, dropped_reason=reason)
    )
    result: Any = session.execute(statement)
    return int(result.rowcount)


def _claim(session: Session, uses: Uses) -> None:
    """Lock the rows, check that they are as the step assumed, and count the use."""
    num_after = uses.num_before + 1
    state = USED if num_after >= uses.num_declared else READY
    for chunk in _chunks(uses.experience_ids):
        query = (
            select(ExperienceRow.experience_id)
            .where(
                *_are(chunk, uses.tenant),
                ExperienceRow.state == READY,
                ExperienceRow.num_uses == uses.num_before,
            )
            .with_for_update(skip_locked=True)
        )
        claimed = set(session.scalars(query))
        if lost := set(chunk) - claimed:
            raise FencedError(
                f"{len(lost)} of {len(chunk)} experiences changed since they were read, first "
                f"{min(lost)}; the step is not recorded, read again"
            )
        session.execute(
            update(ExperienceRow)
            .where(*_are(chunk, uses.tenant))
            .values(num_uses=num_after, state=state)
        )


def _chunks(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK)]
