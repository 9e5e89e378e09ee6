"""Feedback in SQL: one row an id, never replaced; only its state moves."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from tidemill.contracts.events import FeedbackReceived
from tidemill.storage.bulk import insert_rows
from tidemill.storage.membership import is_any, is_any_pair
from tidemill.storage.tables import DuplicateDeliveryRow, FeedbackRow

PENDING = "pending"
DEAD_LETTERED = "dead_lettered"
ERASED = "erased"

FeedbackKey = tuple[str, str]
"""Tenant and feedback id."""

Target = tuple[str, str]
"""Tenant, and the id of an interaction or a trajectory."""


_KNOWN_DIGESTS = select(FeedbackRow.tenant, FeedbackRow.feedback_id, FeedbackRow.body_digest).where(
    is_any_pair(FeedbackRow.tenant, FeedbackRow.feedback_id)
)

_BY_TARGET = select(*FeedbackRow.__table__.c).where(
    is_any_pair(FeedbackRow.tenant, FeedbackRow.target_id)
)


class NewFeedback(NamedTuple):
    """A feedback, where it lies in the log, and its state."""

    event: FeedbackReceived
    document: bytes
    partition: int
    offset: int
    appended_at: datetime
    expires_at: datetime
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A record whose id was known with the same body."""

    topic: str
    partition: int
    offset: int
    tenant: str
    record_id: str
    appended_at: datetime


def insert_feedback(session: Session, feedback: Sequence[NewFeedback]) -> None:
    """Add feedback in one statement."""
    insert_rows(session, FeedbackRow, [_values(new) for new in feedback])


def insert_duplicates(session: Session, duplicates: Sequence[Duplicate]) -> None:
    """Record repeated deliveries."""
    rows = [
        {
            "topic": one.topic,
            "partition": one.partition,
            "log_offset": one.offset,
            "tenant": one.tenant,
            "record_id": one.record_id,
            "appended_at": one.appended_at,
        }
        for one in duplicates
    ]
    insert_rows(session, DuplicateDeliveryRow, rows)


def fetch_known_digests(session: Session, keys: Collection[FeedbackKey]) -> dict[FeedbackKey, str]:
    """Return the body digests of those ids that are known."""
    if not keys:
        return {}
    found = session.connection().execute(_KNOWN_DIGESTS, {"pairs": keys})
    return {(tenant, one): digest for tenant, one, digest in found}


def fetch_by_target(session: Session, targets: Collection[Target]) -> list[FeedbackRow]:
    """Return all feedback on some targets, as read-only rows."""
    if not targets:
        return []
    # Plain rows with the same names: objects cost more than the query, and one that this
    # transaction holds already would be as it was before a statement moved its row.
    found = session.connection().execute(_BY_TARGET, {"pairs": targets})
    return cast("list[FeedbackRow]", found.all())


def fetch_partitions_expired(session: Session, *, until: datetime) -> set[int]:
    """Return the partitions that hold pending feedback which expired before a moment."""
    query = (
        select(FeedbackRow.partition)
        .where(FeedbackRow.state == PENDING, FeedbackRow.expires_at < until)
        .distinct()
    )
    return set(session.scalars(query))


def fetch_expired(
    session: Session, *, partitions: Mapping[int, datetime], limit: int
) -> list[FeedbackRow]:
    """Return pending feedback that expired before the moment given for its partition."""
    due = [
        (FeedbackRow.partition == partition) & (FeedbackRow.expires_at < until)
        for partition, until in sorted(partitions.items())
    ]
    if not due:
        return []
    query = (
        select(FeedbackRow)
        .where(FeedbackRow.state == PENDING, or_(*due))
        .order_by(FeedbackRow.partition, FeedbackRow.log_offset)
        .limit(limit)
    )
    return list(session.scalars(query))


def mark_states(session: Session, states: Mapping[FeedbackKey, str]) -> None:
    """Move feedback to other states."""
    alike: dict[tuple[str, str], list[str]] = {}
    for (tenant, feedback_id), state in states.items():
        alike.setdefault((tenant, state), []).append(feedback_id)
    for (tenant, state), ids in alike.items():
        session.execute(
            update(FeedbackRow)
            .where(FeedbackRow.tenant == tenant, is_any(FeedbackRow.feedback_id, ids))
            .values(state=state)
            .execution_options(synchronize_session=False)
        )


def fetch_feedback(session: Session, *, tenant: str, feedback_id: str) -> FeedbackRow | None:
    """Return one feedback; None = no such id."""
    return session.get(FeedbackRow, (tenant, feedback_id))


def _values(new: NewFeedback) -> dict[str, Any]:
    event = new.event
    value = event.value
    return {
        "tenant": event.tenant,
        "feedback_id": event.feedback_id,
        "trajectory_id": event.trajectory_id,
        "interaction_id": event.interaction_id,
        "target_id": event.target_id,
        "metric": event.metric,
        "value": value if isinstance(value, bool | float) else value.model_dump(mode="json"),
        "source": event.source.value,
        "rater": event.rater,
        "body_digest": event.body_digest,
        "document": new.document,
        "state": new.state,
        "partition": new.partition,
        "log_offset": new.offset,
        "appended_at": new.appended_at,
        "expires_at": new.expires_at,
    }
