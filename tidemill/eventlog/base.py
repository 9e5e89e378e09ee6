"""What a log is to the rest of Tidemill.

A log orders records within a partition and stamps each with its append time, which never goes back
within a partition. Consumers keep their offsets in SQL; the log only shares out partitions among
the members of a group. `tests/contract` runs one suite against every implementation.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from tidemill.errors import EventLogError


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """One ordered sequence of records."""

    topic: str
    partition: int


class Position(NamedTuple):
    """Where a record came to lie."""

    topic: str
    partition: int
    offset: int
    appended_at: datetime


Appended = Position | EventLogError
"""Where a record came to lie, or why it was not stored as far as is known."""


class NewRecord(NamedTuple):
    """A record that waits for its place."""

    key: str
    value: bytes


class Record(NamedTuple):
    """A record as read back."""

    topic: str
    partition: int
    offset: int
    key: str
    value: bytes
    appended_at: datetime

    @property
    def topic_partition(self) -> TopicPartition:
        """Its sequence."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: offsets `first` to `end` - 1."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing about a topic that is not as declared."""

    topic: str
    name: str
    """`topic`, `partitions`, or a setting by the log's own name."""
    found: str
    declared: str
    is_repairable: bool
    """Whether it can be put right without harm to the records that are there."""

    def __str__(self) -> str:
        """Return it as one line."""
        return f"{self.topic}: {self.name} is {self.found}, declared {self.declared}"


PositionLoader = Callable[[TopicPartition], int | None]
"""The next offset of a partition from SQL; None = begin at the first record."""


class EventSink(Protocol):
    """Appends; thread-safe."""

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        """Append a record; the future is done once the record is durable.

        The future fails with `EventLogUnavailableError` when nothing was stored or when that
        cannot be known within the declared time; an unknown outcome may still appear later.
        """
        ...

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        """Append records of one topic, in order; the future is done once all are settled.

        It never fails: it holds what became of each record. One of them never spoils the others.
        What is cancelled in time is not stored at all. Many records cost one hand-over.
        """
        ...

    def close(self) -> None:
        """Wait for what is under way, then release everything."""
        ...


class EventSource(Protocol):
    """One member of a consumer group; used by one thread."""

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return records of the assigned partitions, in order within each; empty at timeout.

        A newly assigned partition begins where the position loader says.
        """
        ...

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are this member's now."""
        ...

    def rewind(self) -> None:
        """Ask the position loader again for every assigned partition (after a fenced batch)."""
        ...

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        ...


class EventLog(Protocol):
    """The log as a whole."""

    def create_topics(self, topics: tuple[str, ...]) -> None:
        """Create what is missing, with the declared number of partitions."""
        ...

    def find_drift(self, topics: tuple[str, ...]) -> list[Drift]:
        """Return where topics differ from what the settings declare; empty = nowhere."""
        ...

    def settle_topics(self, topics: tuple[str, ...]) -> list[Drift]:
        """Create what is missing and put right what can be; return what is left.

        The number of partitions never changes: a record's partition is a function of its key.
        """
        ...

    def sink(self) -> EventSink:
        """Return a new sink."""
        ...

    def source(
        self, topics: tuple[str, ...], *, group: str, positions: PositionLoader
    ) -> EventSource:
        """Join a group; partition n of every topic goes to the same member."""
        ...

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Return what each partition holds now."""
        ...

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        """Read without a group: for the ledger, replay and tools."""
        ...

    def retain(self, topic: str, committed: Mapping[int, int], *, now: datetime) -> int:
        """Remove the oldest records of a topic that are past the declared retention.

        Args:
            topic: its name.
            committed: for each partition the first offset that some consumer group has not stored;
                nothing from there on is removed, nor anything of a partition that is not named.
            now: the wall clock.

        Returns:
            How many were removed; there may be more. 0 where the log does it by itself.
        """
        ...

    def close(self) -> None:
        """Release what the log itself holds; sinks and sources are closed by their owners."""
        ...
