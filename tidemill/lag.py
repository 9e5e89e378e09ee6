"""How far a consumer group is behind the log, in records and in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import Bounds, EventLog
from tidemill.storage.database import Database
from tidemill.storage.offsets import fetch_progress

TOPICS_CONSUMED = (INTERACTIONS, FEEDBACK)
"""What ingest reads; the other topics have no reader with offsets in SQL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """What one partition holds, and how much of it is unread."""

    topic: str
    partition: int
    first_offset: int
    """The oldest record that is kept."""
    end_offset: int
    """The next record will have it."""
    committed: int | None
    """The first record that the group has not stored; None = it has not begun, or nobody reads."""
    lag_records: int | None
    """Unread records; None = nobody reads this topic."""
    lag_s: float | None
    """Age of the oldest unread record by its append time, in seconds; 0 = all is read."""

    @property
    def num_records(self) -> int:
        """How many records are kept, as far as offsets tell."""
        return self.end_offset - self.first_offset


def measure_lag(
    database: Database, log: EventLog, topics: Iterable[str], *, group: str, now: datetime
) -> list[PartitionLag]:
    """Return where every partition of some topics stands.

    Raises:
        StorageError: the database cannot be asked.
        EventLogError: a topic does not exist, or the log cannot be read.
    """
    with database.reading() as session:
        progress = fetch_progress(session, group)
    # The log after the rows, so that nothing is committed beyond the end that was seen.
    return [
        _measure(log, (topic, partition), bounds, progress, now)
        for topic in topics
        for partition, bounds in sorted(log.bounds(topic).items())
    ]


def _measure(
    log: EventLog,
    place: tuple[str, int],
    bounds: Bounds,
    progress: Mapping[tuple[str, int], int],
    now: datetime,
) -> PartitionLag:
    topic, partition = place
    committed = progress.get(place)
    lag_records: int | None = None
    lag_s: float | None = None
    if committed is not None or topic in TOPICS_CONSUMED:
        unread_from = max(bounds.first, committed or 0)
        lag_records, lag_s = max(0, bounds.end - unread_from), 0.0
        oldest = (
            log.read(topic, partition, offset=unread_from, max_records=1) if lag_records else []
        )
        if oldest:
            # The broker's clock may be ahead of this machine's.
            lag_s = max(0.0, (now - oldest[0].appended_at).total_seconds())
    return PartitionLag(
        topic=topic,
        partition=partition,
        first_offset=bounds.first,
        end_offset=bounds.end,
        committed=committed,
        lag_records=lag_records,
        lag_s=lag_s,
    )
