"""A log that stands still: up to where it went at one moment, read by one reader, without a group.

What is appended meanwhile is not seen, so that a replay is of one well-defined log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from tidemill.errors import EventLogError
from tidemill.eventlog.base import (
    Bounds,
    Drift,
    EventLog,
    EventSink,
    EventSource,
    PositionLoader,
    Record,
    TopicPartition,
)


@dataclass(frozen=True, slots=True)
class FrozenLog:
    """Implements `EventLog`, for reading only."""

    log: EventLog
    frozen: Mapping[str, Mapping[int, Bounds]]
    """What each topic held at the moment."""

    def create_topics(self, topics: tuple[str, ...]) -> None:
        """Refuse.

        Raises:
            EventLogError: always.
        """
        raise EventLogError(f"the log is frozen: no topics {topics}")

    def find_drift(self, topics: tuple[str, ...]) -> list[Drift]:
        """Return what the log itself says."""
        return self.log.find_drift(topics)

    def settle_topics(self, topics: tuple[str, ...]) -> list[Drift]:
        """Refuse.

        Raises:
            EventLogError: always.
        """
        raise EventLogError(f"the log is frozen: topics stay as they are: {topics}")

    def sink(self) -> EventSink:
        """Refuse.

        Raises:
            EventLogError: always.
        """
        raise EventLogError("the log is frozen: nothing is appended")

    def source(
        self, topics: tuple[str, ...], *, group: str, positions: PositionLoader
    ) -> EventSource:
        """Return a reader of everything; no group learns of it."""
        del group
        return FrozenSource(self, topics, positions)

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Return what each partition held at the moment."""
        return dict(self.frozen[topic])

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        """Read up to the moment.

        Raises:
            EventLogError: the log cannot be read.
        """
        end = self.frozen[topic][partition].end
        if offset >= end:
            return []
        records = self.log.read(
            topic, partition, offset=offset, max_records=min(max_records, end - offset)
        )
        return [record for record in records if record.offset < end]

    def retain(self, topic: str, committed: Mapping[int, int], *, now: datetime) -> int:
        """Remove nothing."""
        del topic, committed, now
        return 0

    def close(self) -> None:
        """Leave the log to its owner."""


@dataclass(slots=True)
class FrozenSource:
    """Implements `EventSource`: one topic after the other, one partition after the other."""

    log: FrozenLog
    topics: tuple[str, ...]
    positions: PositionLoader
    _next: dict[TopicPartition, int] = field(default_factory=dict, init=False)

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return the next records of one partition; empty at the end, without waiting.

        Raises:
            EventLogError: the log cannot be read.
        """
        del timeout_s
        for place in self._places():
            offset = self._offset(place)
            bounds = self.log.frozen[place.topic][place.partition]
            if offset >= bounds.end:
                continue
            records = self.log.read(
                place.topic, place.partition, offset=offset, max_records=max_records
            )
            # Nothing there: retention has just taken the rest.
            self._next[place] = records[-1].offset + 1 if records else bounds.end
            if records:
                return records
        return []

    def assignment(self) -> frozenset[TopicPartition]:
        """All partitions."""
        return frozenset(self._places())

    def rewind(self) -> None:
        """Ask the position loader again."""
        self._next.clear()

    def close(self) -> None:
        """There is no group to leave."""

    def _places(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, partition)
            for topic in self.topics
            for partition in sorted(self.log.frozen[topic])
        ]

    def _offset(self, place: TopicPartition) -> int:
        if place not in self._next:
            first = self.log.frozen[place.topic][place.partition].first
            self._next[place] = max(first, self.positions(place) or 0)
        return self._next[place]
