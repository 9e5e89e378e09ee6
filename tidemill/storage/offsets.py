"""How far a consumer group has come; the offset moves in the transaction of the rows it caused."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from zlib import crc32

from sqlalchemy import func, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tidemill.errors import FencedError
from tidemill.storage.tables import AcknowledgedCountRow, LogOffsetRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One batch of one partition."""

    topic: str
    partition: int
    expected: int | None
    """Where this worker believes the group stands; None = it has not begun."""
    first_offset: int
    next_offset: int
    num_records: int
    appended_until: datetime


_HOLD = text(
    "SELECT pg_advisory_xact_lock(:in_group, number)"
    " FROM unnest(CAST(:numbers AS integer[])) AS number"
)


def hold_partitions(session: Session, group: str, partitions: Iterable[int]) -> None:
    """Keep the other workers of a group out of some partitions, in all topics, until the end.

    An offset row guards its own topic alone. While partitions move, one worker may still have the
    feedback of a partition and another its interactions already: each would then store its half,
    unseen by the other, and join nothing. On SQLite, whoever writes is alone anyway.
    """
    if session.get_bind().dialect.name == "sqlite":
        return
    # As PostgreSQL has it: a signed number of 32 bits.
    group_number = int.from_bytes(crc32(group.encode()).to_bytes(4), signed=True)
    # Sorted, so that two workers never wait for each other in a circle.
    session.execute(_HOLD, {"in_group": group_number, "numbers": sorted(set(partitions))})


def advance_offset(session: Session, group: str, step: Advance) -> None:
    """Move a group's offset by compare-and-set.

    Raises:
        FencedError: another worker moved it; this transaction must be dropped.
    """
    if step.expected is None:
        _begin(session, group, step)
        return
    query = (
        update(LogOffsetRow)
        .where(
            LogOffsetRow.consumer_group == group,
            LogOffsetRow.topic == step.topic,
            LogOffsetRow.partition == step.partition,
            LogOffsetRow.next_offset == step.expected,
        )
        .values(
            next_offset=step.next_offset,
            num_records=LogOffsetRow.num_records + step.num_records,
            appended_until=step.appended_until,
        )
        .returning(LogOffsetRow.partition)
        .execution_options(synchronize_session=False)
    )
    if session.scalar(query) is None:
        raise _fenced(group, step)


def fetch_position(session: Session, group: str, topic: str, partition: int) -> int | None:
    """Return the first offset that a group has not processed; None = it has not begun."""
    row = session.get(LogOffsetRow, (group, topic, partition))
    return None if row is None else row.next_offset


def fetch_offsets(
    session: Session, group: str, *, topic: str, partitions: Collection[int]
) -> dict[int, LogOffsetRow]:
    """Return the offset rows of some partitions of a topic."""
    query = select(LogOffsetRow).where(
        LogOffsetRow.consumer_group == group,
        LogOffsetRow.topic == topic,
        LogOffsetRow.partition.in_(partitions),
    )
    return {row.partition: row for row in session.scalars(query)}


def fetch_progress(session: Session, group: str) -> dict[tuple[str, int], int]:
    """Return the first offset, by topic and partition, that a group has not processed."""
    query = select(LogOffsetRow.topic, LogOffsetRow.partition, LogOffsetRow.next_offset).where(
        LogOffsetRow.consumer_group == group
    )
    return {(topic, number): offset for topic, number, offset in session.execute(query)}


def fetch_committed(session: Session, group: str, *, topic: str) -> dict[int, int]:
    """Return, by partition, the first offset that one of all groups has not processed.

    Partitions that `group` has not begun are left out: it has stored nothing of them.
    """
    query = select(LogOffsetRow.partition, func.min(LogOffsetRow.next_offset)).where(
        LogOffsetRow.topic == topic,
        LogOffsetRow.partition.in_(
            select(LogOffsetRow.partition).where(
                LogOffsetRow.consumer_group == group, LogOffsetRow.topic == topic
            )
        ),
    )
    return dict(session.execute(query.group_by(LogOffsetRow.partition)).all())


def write_acknowledged(session: Session, row: AcknowledgedCountRow) -> None:
    """Write what one API process has acknowledged so far over the last count."""
    session.merge(row)


def _begin(session: Session, group: str, step: Advance) -> None:
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    values = {
        "consumer_group": group,
        "topic": step.topic,
        "partition": step.partition,
        "first_offset": step.first_offset,
        "next_offset": step.next_offset,
        "num_records": step.num_records,
        "appended_until": step.appended_until,
    }
    query = insert(LogOffsetRow).values(values).on_conflict_do_nothing()
    if session.scalar(query.returning(LogOffsetRow.partition)) is None:
        raise _fenced(group, step)


def _fenced(group: str, step: Advance) -> FencedError:
    return FencedError(
        f"{group} expected {step.topic}[{step.partition}] at {step.expected}, but another worker "
        "moved it; drop the batch and read again"
    )
