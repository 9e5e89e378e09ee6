"""Records that cannot be used, kept whole with their reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from tidemill.storage.tables import DeadLetterRow


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDeadLetter:
    """One record and why it is here."""

    topic: str
    partition: int
    offset: int
    appended_at: datetime
    payload: bytes
    reason: str
    detail: str
    tenant: str | None
    record_id: str | None
    owns_record: bool = True
    """False when another row already stands for this log record."""


def insert_dead_letters(session: Session, letters: Sequence[NewDeadLetter]) -> None:
    """Add dead letters in one statement."""
    if letters:
        session.execute(
            insert(DeadLetterRow),
            [
                {
                    "topic": letter.topic,
                    "partition": letter.partition,
                    "log_offset": letter.offset,
                    "reason": letter.reason,
                    "detail": letter.detail,
                    "tenant": letter.tenant,
                    "record_id": letter.record_id,
                    "payload": letter.payload,
                    "appended_at": letter.appended_at,
                    "owns_record": letter.owns_record,
                }
                for letter in letters
            ],
        )


def fetch_dead_letters(session: Session, *, tenant: str, record_id: str) -> list[DeadLetterRow]:
    """Return the dead letters of one feedback or interaction, oldest first."""
    query = (
        select(DeadLetterRow)
        .where(DeadLetterRow.tenant == tenant, DeadLetterRow.record_id == record_id)
        .order_by(DeadLetterRow.appended_at, DeadLetterRow.log_offset)
    )
    return list(session.scalars(query))


def fetch_dead_letter_counts(session: Session) -> dict[str, int]:
    """Return how many dead letters there are for each reason."""
    query = select(DeadLetterRow.reason, func.count()).group_by(DeadLetterRow.reason)
    return dict(session.execute(query).all())
