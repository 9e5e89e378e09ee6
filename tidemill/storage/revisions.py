"""Revisions of experiences: written by ingest for late feedback, taken up by a learner.

A revision is written whether or not its experience was trained on, so that a replay writes the same
ones. Whether it was is asked when revisions are fetched, in the one statement that fetches them: an
experience that is trained on a moment later makes its revision due by that.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, or_, select, union, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tidemill.contracts.experience import Experience, Outcome
from tidemill.errors import FencedError
from tidemill.storage.experiences import to_experience
from tidemill.storage.membership import is_any
from tidemill.storage.quarantine import touches_quarantine
from tidemill.storage.tables import (
    ExperienceRevisionRow,
    ExperienceRow,
    FeedbackRow,
    InteractionRow,
)

DUE = "due"
"""Its experience was trained on; no learner has taken it up yet."""
TAKEN = "taken"
IDLE = "idle"
"""Its experience was not trained on: there is nothing to correct."""
REVISION_STATES = (DUE, TAKEN, IDLE)

_REVISABLE = (Outcome.REWARDED.value, Outcome.DEFAULTED.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRevision:
    """The reward of an experience as one late feedback leaves it."""

    tenant: str
    experience_id: str
    feedback_id: str
    outcome: str
    reward: float
    components: dict[str, float]
    reward_spec_hash: str
    partition: int
    offset: int
    appended_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRevision:
    """The newest revision of one experience that was trained on with another reward."""

    experience_id: str
    feedback_id: str
    reward: float
    components: dict[str, float]
    reward_spec_hash: str
    offset: int
    appended_at: datetime


@dataclass(frozen=True, slots=True)
class Revisable:
    """A closed interaction and its experience."""

    experience: Experience
    document: bytes
    served_at: datetime


def fetch_revisable(
    session: Session, *, tenant: str, target_ids: Collection[str]
) -> list[Revisable]:
    """Return the experiences of interactions, found by their own id or by their trajectory's.

    The interactions stay locked until the end of the transaction, the open ones too: whoever
    closes one meanwhile waits, and then sees the feedback that was stored here.
    """
    row = InteractionRow
    # Two sets by one index each: for `id or trajectory` a database reads the whole table.
    ids = select(row.interaction_id).where(row.tenant == tenant)
    wanted = union(
        ids.where(is_any(row.interaction_id, target_ids)),
        ids.where(is_any(row.trajectory_id, target_ids)),
    )
    query = (
        select(row.interaction_id, row.state, row.document, row.appended_at)
        .where(row.tenant == tenant, row.interaction_id.in_(wanted))
        # In the order in which interactions are closed, so that nobody waits in a circle.
        .order_by(row.closes_at, row.interaction_id)
        .with_for_update(read=True)
    )
    found = {one.interaction_id: one for one in session.execute(query) if one.state in _REVISABLE}
    experiences = session.scalars(
        select(ExperienceRow).where(
            is_any(ExperienceRow.experience_id, found), ExperienceRow.tenant == tenant
        )
    )
    return [
        Revisable(
            to_experience(one),
            found[one.experience_id].document or b"",
            found[one.experience_id].appended_at,
        )
        for one in experiences
    ]


def insert_revisions(session: Session, revisions: Sequence[NewRevision]) -> None:
    """Add revisions; one that is there already stays as it is."""
    if not revisions:
        return
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    session.execute(
        insert(ExperienceRevisionRow).on_conflict_do_nothing(),
        [
            {
                "tenant": one.tenant,
                "experience_id": one.experience_id,
                "feedback_id": one.feedback_id,
                "outcome": one.outcome,
                "reward": one.reward,
                "components": one.components,
                "reward_spec_hash": one.reward_spec_hash,
                "partition": one.partition,
                "log_offset": one.offset,
                "appended_at": one.appended_at,
                "taken_at": None,
                "taken_by": None,
            }
            for one in revisions
        ],
    )


def fetch_due_revisions(
    session: Session, *, model: str, tenant: str, limit: int = 1000
) -> list[DueRevision]:
    """Return the newest revision of each experience that was trained on, where none was taken up.

    Oldest first. An experience counts as trained on once a step that used it was recorded. Those
    that somebody in quarantine had a part in are left out as long as that lasts.
    """
    row = ExperienceRevisionRow
    rank = func.row_number().over(
        partition_by=row.experience_id, order_by=(row.appended_at.desc(), row.log_offset.desc())
    )
    ranked = (
        select(row, rank.label("rank"))
        .join(ExperienceRow, _is_revised())
        .where(
            row.tenant == tenant,
            row.taken_at.is_(None),
            ExperienceRow.model == model,
            ExperienceRow.num_uses > 0,
            # A revision holds whatever was said before it, so one rater spoils all of them.
            ~touches_quarantine(("joined", "superseded", "late")),
        )
        .subquery()
    )
    query = (
        select(ranked)
        .where(ranked.c.rank == 1)
        .order_by(ranked.c.appended_at, ranked.c.experience_id)
        .limit(limit)
    )
    return [
        DueRevision(
            experience_id=one.experience_id,
            feedback_id=one.feedback_id,
            reward=one.reward,
            components=dict(one.components),
            reward_spec_hash=one.reward_spec_hash,
            offset=one.log_offset,
            appended_at=one.appended_at,
        )
        for one in session.execute(query)
    ]


def mark_revisions_taken(
    session: Session, revisions: Sequence[DueRevision], *, tenant: str, learner: str, now: datetime
) -> None:
    """Mark revisions as taken up, each with those of its experience that it outdates.

    To be called in the transaction of the step that took them up.

    Raises:
        FencedError: one of them was taken up by somebody else.
    """
    row = ExperienceRevisionRow
    for revision in revisions:
        query = (
            update(row)
            .where(
                row.tenant == tenant,
                row.experience_id == revision.experience_id,
                _is_outdated_by(revision),
                row.taken_at.is_(None),
            )
            .values(taken_at=now, taken_by=learner)
            .returning(row.feedback_id)
            .execution_options(synchronize_session=False)
        )
        if revision.feedback_id not in set(session.scalars(query)):
            raise FencedError(
                f"the revision of {revision.experience_id} by {revision.feedback_id} was taken up "
                "by somebody else; read again"
            )


def _is_outdated_by(revision: DueRevision) -> ColumnElement[bool]:
    """Return the condition of coming no later, in the order that makes a revision the newest."""
    row = ExperienceRevisionRow
    # Not by offset alone: append times go back where a broker with a slower clock takes over.
    is_same_moment = row.appended_at == revision.appended_at
    return or_(
        row.appended_at < revision.appended_at,
        and_(is_same_moment, row.log_offset <= revision.offset),
    )


def fetch_revision_counts(session: Session) -> dict[str, int]:
    """Return how many revisions are due, taken and idle."""
    row = ExperienceRevisionRow
    state: Any = case(
        (row.taken_at.is_not(None), TAKEN), (ExperienceRow.num_uses > 0, DUE), else_=IDLE
    ).label("state")
    counted = select(state).select_from(row).outerjoin(ExperienceRow, _is_revised()).subquery()
    query = select(counted.c.state, func.count()).group_by(counted.c.state)
    return dict(session.execute(query).all())


def fetch_num_baseless(session: Session) -> int:
    """Return how many revisions lack their experience or their feedback."""
    row = ExperienceRevisionRow
    is_of_feedback = (FeedbackRow.tenant == row.tenant) & (
        FeedbackRow.feedback_id == row.feedback_id
    )
    query = (
        select(func.count())
        .select_from(row)
        .outerjoin(ExperienceRow, _is_revised())
        .outerjoin(FeedbackRow, is_of_feedback)
        .where(or_(ExperienceRow.experience_id.is_(None), FeedbackRow.feedback_id.is_(None)))
    )
    return session.scalar(query) or 0


def _is_revised() -> ColumnElement[bool]:
    """Return the condition that a revision is of an experience."""
    return and_(
        ExperienceRow.experience_id == ExperienceRevisionRow.experience_id,
        ExperienceRow.tenant == ExperienceRevisionRow.tenant,
    )
