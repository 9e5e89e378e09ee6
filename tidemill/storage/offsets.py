"""How far a consumer group has come; the offset moves in the transaction of the rows it caused."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast
from zlib import crc32

from sqlalchemy import Table, bindparam, func, select, text, update
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


# Built once: the layers above a statement cost more than the statement.
_MOVE = (
    update(cast("Table", LogOffsetRow.__table__))
    .where(
        LogOffsetRow.consumer_group == bindparam("in_group"),
        LogOffsetRow.topic == bindparam("in_topic"),
        LogOffsetRow.partition == bindparam("in_partition"),
        LogOffsetRow.next_offset == bindparam("expected"),
    )
    .values(
        next_offset=bindparam("until"),
        num_records=LogOffsetRow.num_records + bindparam("more"),
        appended_until=bindparam("moment"),
    )
)

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


def advance_offsets(session: Session, group: str, steps: Sequence[Advance]) -> None:
    """Move a group's offsets by compare-and-set, all of them or none.

    Raises:
        FencedError: another worker moved one; this transaction must be dropped.
    """
    moves: list[dict[str, Any]] = []
    for step in steps:
        if step.expected is None:
            _begin(session, group, step)
        else:
            moves.append(_move(group, step))
    if moves and session.connection().execute(_MOVE, moves).rowcount != len(moves):
        raise _fenced(group, [step for step in steps if step.expected is not None])


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


def _move(group: str, step: Advance) -> dict[str, Any]:
    return {
        "in_group": group,
        "in_topic": step.topic,
        "in_partition": step.partition,
        "expected": step.expected,
        "until": step.next_offset,
        "more": step.num_records,
        "moment": step.appended_until,
    }


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
        raise _fenced(group, [step])


def _fenced(group: str, steps: Sequence[Advance]) -> FencedError:
    places = ", ".join(f"{step.topic}[{step.partition}] at {step.expected}" for step in steps)
    return FencedError(
        f"{group} expected {places}, but another worker moved on; drop the batch and read again"
    )
