"""Records that cannot be used, kept whole with their reason, and what became of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import case, insert, select, tuple_, update
from sqlalchemy.orm import Session

from tidemill.storage.tables import DeadLetterRow


class LetterState(StrEnum):
    """What became of a dead letter; the values are the stored strings."""

    OPEN = "open"
    REPLAYED = "replayed"
    """An operator appended its record to the log again; that record counts instead."""
    RETURNED = "returned"
    """The same feedback came again by itself after it had expired; that record counts instead."""
    DROPPED = "dropped"
    """An operator closed it for good; it stays a dead letter."""


@dataclass(frozen=True, slots=True, order=True)
class LetterPlace:
    """The log record that a dead letter is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Return it as people write it: topic/partition/offset."""
        return f"{self.topic}/{self.partition}/{self.offset}"


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
    state: LetterState = LetterState.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterQuery:
    """Which dead letters are meant; None = any."""

    state: LetterState | None = LetterState.OPEN
    reason: str | None = None
    topic: str | None = None
    since: datetime | None = None
    """Appended to the log at this time or later."""
    limit: int | None = None


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
                    "state": letter.state.value,
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


def find_dead_letters(session: Session, wanted: LetterQuery) -> list[DeadLetterRow]:
    """Return the dead letters that a query means, oldest first; with a limit, the newest."""
    query = select(DeadLetterRow)
    if wanted.state is not None:
        query = query.where(DeadLetterRow.state == wanted.state.value)
    if wanted.reason is not None:
        query = query.where(DeadLetterRow.reason == wanted.reason)
    if wanted.topic is not None:
        query = query.where(DeadLetterRow.topic == wanted.topic)
    if wanted.since is not None:
        query = query.where(DeadLetterRow.appended_at >= wanted.since)
    order = (
        DeadLetterRow.appended_at,
        DeadLetterRow.topic,
        DeadLetterRow.partition,
        DeadLetterRow.log_offset,
    )
    query = query.order_by(*(column.desc() for column in order)).limit(wanted.limit)
    return list(session.scalars(query))[::-1]


def fetch_dead_letter(
    session: Session, place: LetterPlace, *, for_update: bool = False
) -> DeadLetterRow | None:
    """Return one dead letter, locked where asked; None = there is none."""
    query = select(DeadLetterRow).where(
        DeadLetterRow.topic == place.topic,
        DeadLetterRow.partition == place.partition,
        DeadLetterRow.log_offset == place.offset,
    )
    return session.scalar(query.with_for_update() if for_update else query)


def mark_returned(session: Session, places: Collection[LetterPlace]) -> None:
    """Let dead letters own their log records: the feedback's row stands for a later one now."""
    if not places:
        return
    keys = [(place.topic, place.partition, place.offset) for place in places]
    at_place = tuple_(DeadLetterRow.topic, DeadLetterRow.partition, DeadLetterRow.log_offset)
    session.execute(
        update(DeadLetterRow)
        .where(at_place.in_(keys))
        .values(
            owns_record=True,
            # What an operator replayed stays his.
            state=case(
                (DeadLetterRow.state == LetterState.REPLAYED.value, DeadLetterRow.state),
                else_=LetterState.RETURNED.value,
            ),
        )
        .execution_options(synchronize_session=False)
    )
