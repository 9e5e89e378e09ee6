"""Feedback that comes again after it had expired: its row moves to the later record."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, delete, select, tuple_, update
from sqlalchemy.orm import Session

from tidemill.contracts.events import FEEDBACK
from tidemill.storage.feedback import DEAD_LETTERED, FeedbackKey
from tidemill.storage.membership import is_any, is_any_pair, unsearched
from tidemill.storage.tables import DuplicateDeliveryRow, FeedbackRow


@dataclass(frozen=True, slots=True, order=True)
class Delivery:
    """One record of a feedback, in log order."""

    appended_at: datetime
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Where a feedback stands from now on."""

    key: FeedbackKey
    to: Delivery
    expires_at: datetime
    state: str


def fetch_dead_lettered(session: Session, keys: Collection[FeedbackKey]) -> list[FeedbackRow]:
    """Return those of some feedbacks that had expired."""
    if not keys:
        return []
    query = select(FeedbackRow).where(
        is_any_pair(FeedbackRow.tenant, FeedbackRow.feedback_id),
        unsearched(FeedbackRow.state) == DEAD_LETTERED,
    )
    return list(session.scalars(query, {"pairs": keys}))


def fetch_repeats(
    session: Session, keys: Collection[FeedbackKey]
) -> dict[FeedbackKey, list[Delivery]]:
    """Return the repeated deliveries of some feedbacks."""
    found: dict[FeedbackKey, list[Delivery]] = {}
    if not keys:
        return found
    row = DuplicateDeliveryRow
    query = select(row.tenant, row.record_id, row.appended_at, row.partition, row.log_offset).where(
        row.topic == FEEDBACK, is_any(row.record_id, {feedback_id for _, feedback_id in keys})
    )
    for tenant, feedback_id, appended_at, partition, offset in session.execute(query):
        # An old row without a tenant belongs to nobody here.
        key = (tenant or "", feedback_id)
        if key in keys:
            found.setdefault(key, []).append(Delivery(appended_at, partition, offset))
    return found


def delete_repeats(session: Session, places: Collection[Delivery]) -> None:
    """Forget deliveries that a feedback's own row stands for now."""
    row = DuplicateDeliveryRow
    if places:
        pairs = [(place.partition, place.offset) for place in places]
        session.execute(
            delete(row)
            .where(row.topic == FEEDBACK, tuple_(row.partition, row.log_offset).in_(pairs))
            .execution_options(synchronize_session=False)
        )


def move_feedback(session: Session, moves: Sequence[Moved]) -> None:
    """Let rows stand for a later record of the same feedback."""
    if not moves:
        return
    query = (
        update(FeedbackRow)
        .where(
            FeedbackRow.tenant == bindparam("of_tenant"),
            FeedbackRow.feedback_id == bindparam("of_id"),
        )
        .values(
            state=bindparam("new_state"),
            partition=bindparam("new_partition"),
            log_offset=bindparam("new_offset"),
            appended_at=bindparam("new_appended_at"),
            expires_at=bindparam("new_expires_at"),
        )
        .execution_options(synchronize_session=False)
    )
    session.connection().execute(
        query,
        [
            {
                "of_tenant": move.key[0],
                "of_id": move.key[1],
                "new_state": move.state,
                "new_partition": move.to.partition,
                "new_offset": move.to.offset,
                "new_appended_at": move.to.appended_at,
                "new_expires_at": move.expires_at,
            }
            for move in moves
        ],
    )
