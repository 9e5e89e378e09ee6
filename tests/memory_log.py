"""A log in memory whose append times a test chooses; it has the protocols of `eventlog.base`."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.factories import NOW
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, Event, InteractionServed
from tidemill.eventlog.base import (
    Appended,
    Bounds,
    Drift,
    EventSink,
    NewRecord,
    Position,
    PositionLoader,
    Record,
    TopicPartition,
)
from tidemill.eventlog.topics import partition_of


@dataclass(slots=True)
class MemoryLog:
    """Every partition is a list."""

    num_partitions: int = 2
    clock: datetime = NOW
    """Append time of whatever comes without one; moves on by itself."""
    partitions: dict[TopicPartition, list[Record]] = field(default_factory=dict)

    def create_topics(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            for number in range(self.num_partitions):
                self.partitions.setdefault(TopicPartition(topic, number), [])

    def find_drift(self, topics: tuple[str, ...]) -> list[Drift]:
        known = {place.topic for place in self.partitions}
        return [Drift(one, "topic", "missing", "there", True) for one in topics if one not in known]

    def settle_topics(self, topics: tuple[str, ...]) -> list[Drift]:
        self.create_topics(topics)
        return []

    def put(self, event: Event, at: datetime | None = None) -> Record:
        """Append an event to its topic."""
        topic = INTERACTIONS if isinstance(event, InteractionServed) else FEEDBACK
        return self.put_bytes(topic, event.key, encode(event), at)

    def put_bytes(self, topic: str, key: str, value: bytes, at: datetime | None = None) -> Record:
        """Append bytes."""
        self.create_topics((topic,))
        if at is None:
            self.clock += timedelta(milliseconds=1)
        moment = self.clock if at is None else at
        place = TopicPartition(topic, partition_of(key, self.num_partitions))
        records = self.partitions[place]
        if records:
            moment = max(moment, records[-1].appended_at)
        record = Record(topic, place.partition, len(records), key, value, moment)
        records.append(record)
        return record

    def sink(self) -> EventSink:
        return MemorySink(self)

    def source(
        self, topics: tuple[str, ...], *, group: str, positions: PositionLoader
    ) -> "MemorySource":
        assert group
        self.create_topics(topics)
        return MemorySource(self, topics, positions)

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return {
            place.partition: Bounds(0, len(records))
            for place, records in self.partitions.items()
            if place.topic == topic
        }

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        return self.partitions[TopicPartition(topic, partition)][offset : offset + max_records]

    def retain(self, topic: str, committed: Mapping[int, int], *, now: datetime) -> int:
        del topic, committed, now
        return 0

    def close(self) -> None:
        pass


@dataclass(slots=True)
class MemorySink:
    """Appends at once."""

    log: MemoryLog

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        record = self.log.put_bytes(topic, key, value)
        done: Future[Position] = Future()
        done.set_result(Position(topic, record.partition, record.offset, record.appended_at))
        return done

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        done: Future[list[Appended]] = Future()
        done.set_result([self.append(topic, one.key, one.value).result() for one in records])
        return done

    def close(self) -> None:
        pass


@dataclass(slots=True)
class MemorySource:
    """Reads everything; one topic after the other, in the order they were asked for."""

    log: MemoryLog
    topics: tuple[str, ...]
    positions: PositionLoader
    at: dict[TopicPartition, int] = field(default_factory=dict)
    only: str | None = None
    """Read this topic alone: a test decides which side comes first."""

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        assert timeout_s >= 0
        found: list[Record] = []
        for topic in self.topics if self.only is None else (self.only,):
            for number in range(self.log.num_partitions):
                place = TopicPartition(topic, number)
                if place not in self.at:
                    self.at[place] = self.positions(place) or 0
                room = max_records - len(found)
                batch = self.log.partitions[place][self.at[place] :][:room]
                self.at[place] += len(batch)
                found += batch
        return found

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(topic, number)
            for topic in self.topics
            for number in range(self.log.num_partitions)
        )

    def rewind(self) -> None:
        self.at.clear()

    def close(self) -> None:
        pass
