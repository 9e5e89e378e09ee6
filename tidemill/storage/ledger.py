"""The rows' side of the ledger: what stands for each log record, and how many are in each state."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.contracts.experience import Origin, Outcome
from tidemill.storage.dead_letters import LetterState
from tidemill.storage.experiences import is_of_interaction
from tidemill.storage.revisions import fetch_num_baseless, fetch_revision_counts
from tidemill.storage.tables import (
    AcknowledgedCountRow,
    DeadLetterRow,
    DuplicateDeliveryRow,
    ExperienceRow,
    FeedbackRow,
    InteractionRow,
    LogOffsetRow,
)

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the group has come in one partition."""

    first_offset: int
    next_offset: int
    num_records: int


@dataclass(frozen=True, slots=True)
class RowsSide:
    """Everything counted in one snapshot of the database."""

    progress: dict[Place, Progress]
    records: dict[Place, int]
    """Rows that stand for one log record each."""
    interactions: dict[str, int]
    """By state."""
    excluded: dict[str, int]
    """By reason."""
    feedback: dict[str, int]
    """By state."""
    num_duplicates: int
    dead_letters: dict[str, int]
    """By reason."""
    letters: dict[str, int]
    """Dead letters by state."""
    dropped: dict[str, int]
    """Experiences that no learner uses any more, by reason."""
    replayed: dict[str, int]
    """By topic: dead letters whose record an operator appended again."""
    revisions: dict[str, int]
    """Revisions of experiences by whether a learner has to take them up."""
    acknowledged: dict[str, int]
    """By topic, over all API processes."""
    num_without_experience: int
    """Rewarded, defaulted or malformed, yet no experience."""
    num_without_interaction: int
    """Live experiences whose interaction is gone or in another state."""
    num_without_letter: int
    """Dead-lettered feedback without its dead letter."""
    num_baseless_revisions: int
    """Revisions without their experience or their feedback."""


def fetch_rows_side(session: Session, *, group: str) -> RowsSide:
    """Count the rows; on PostgreSQL all queries see the same snapshot."""
    if session.get_bind().dialect.name == "postgresql":
        session.connection(execution_options={"isolation_level": "REPEATABLE READ"})
    return RowsSide(
        progress=_progress(session, group),
        records=_records(session),
        interactions=_count_by(session, InteractionRow.state),
        excluded=_count_by(session, InteractionRow.excluded_reason),
        feedback=_count_by(session, FeedbackRow.state),
        num_duplicates=session.scalar(select(func.count(DuplicateDeliveryRow.topic))) or 0,
        dead_letters=_count_by(session, DeadLetterRow.reason),
        letters=_count_by(session, DeadLetterRow.state),
        dropped=_count_by(session, ExperienceRow.dropped_reason),
        replayed=_replayed(session),
        revisions=fetch_revision_counts(session),
        acknowledged=_acknowledged(session),
        num_without_experience=_without_experience(session),
        num_without_interaction=_without_interaction(session),
        num_without_letter=_without_letter(session),
        num_baseless_revisions=fetch_num_baseless(session),
    )


def _progress(session: Session, group: str) -> dict[Place, Progress]:
    rows = session.scalars(select(LogOffsetRow).where(LogOffsetRow.consumer_group == group))
    return {
        (row.topic, row.partition): Progress(row.first_offset, row.next_offset, row.num_records)
        for row in rows
    }


def _records(session: Session) -> dict[Place, int]:
    counts: Counter[Place] = Counter()
    for topic, column in (
        (INTERACTIONS, InteractionRow.partition),
        (FEEDBACK, FeedbackRow.partition),
    ):
        for partition, number in session.execute(select(column, func.count()).group_by(column)):
            counts[topic, partition] += number
    duplicates = select(
        DuplicateDeliveryRow.topic, DuplicateDeliveryRow.partition, func.count()
    ).group_by(DuplicateDeliveryRow.topic, DuplicateDeliveryRow.partition)
    letters = (
        select(DeadLetterRow.topic, DeadLetterRow.partition, func.count())
        .where(DeadLetterRow.owns_record)
        .group_by(DeadLetterRow.topic, DeadLetterRow.partition)
    )
    for query in (duplicates, letters):
        for topic, partition, number in session.execute(query):
            counts[topic, partition] += number
    return dict(counts)


def _count_by(session: Session, column: Any) -> dict[str, int]:
    query = select(column, func.count()).where(column.is_not(None)).group_by(column)
    return {str(value): number for value, number in session.execute(query)}


def _replayed(session: Session) -> dict[str, int]:
    query = (
        select(DeadLetterRow.topic, func.count())
        .where(DeadLetterRow.state == LetterState.REPLAYED.value)
        .group_by(DeadLetterRow.topic)
    )
    return dict(session.execute(query).all())


def _acknowledged(session: Session) -> dict[str, int]:
    total = func.sum(AcknowledgedCountRow.num_acknowledged)
    query = select(AcknowledgedCountRow.topic, total).group_by(AcknowledgedCountRow.topic)
    return {topic: int(number) for topic, number in session.execute(query)}


def _without_experience(session: Session) -> int:
    query = (
        select(func.count(InteractionRow.interaction_id))
        .outerjoin(ExperienceRow, is_of_interaction())
        .where(InteractionRow.state.in_(list(Outcome)), ExperienceRow.experience_id.is_(None))
    )
    return session.scalar(query) or 0


def _without_interaction(session: Session) -> int:
    query = (
        select(func.count(ExperienceRow.experience_id))
        .outerjoin(InteractionRow, is_of_interaction())
        .where(
            ExperienceRow.origin == Origin.LIVE.value,
            or_(
                InteractionRow.interaction_id.is_(None),
                InteractionRow.state != ExperienceRow.outcome,
            ),
        )
    )
    return session.scalar(query) or 0


def _without_letter(session: Session) -> int:
    at_place = (
        (DeadLetterRow.topic == FEEDBACK)
        & (DeadLetterRow.partition == FeedbackRow.partition)
        & (DeadLetterRow.log_offset == FeedbackRow.log_offset)
    )
    query = (
        select(func.count(FeedbackRow.feedback_id))
        .outerjoin(DeadLetterRow, at_place)
        .where(FeedbackRow.state == "dead_lettered", DeadLetterRow.topic.is_(None))
    )
    return session.scalar(query) or 0
