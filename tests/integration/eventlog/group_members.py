"""Members of a consumer group as threads: they store what they read, with its offsets, by turns."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tests.stored_offsets import StoredOffsets
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import EventLog, Record, TopicPartition

PATIENCE_S = 40.0


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


@dataclass
class GroupMember:
    """Polls and stores in a thread of its own; `hold` stops it between the two."""

    log: EventLog
    topics: tuple[str, ...]
    group: str
    rows: StoredOffsets
    stored: list[Record] = field(default_factory=list)
    num_fenced: int = 0
    assigned: frozenset[TopicPartition] = frozenset()
    go_on: threading.Event = field(default_factory=threading.Event)
    held: list[Record] = field(default_factory=list)
    is_held: threading.Event = field(default_factory=threading.Event)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "GroupMember":
        """Join the group."""
        self.go_on.set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def hold(self) -> None:
        """Wait until it has a batch that is not stored, and keep it there."""
        self.is_held.clear()
        self.go_on.clear()
        assert self.is_held.wait(PATIENCE_S), "it got nothing to store"

    def leave(self) -> None:
        """Leave the group in order."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def is_overtaken(self) -> bool:
        """Tell whether another member stored records that this one holds."""
        return any(
            (self.rows.load(record.topic_partition) or 0) > record.offset for record in self.held
        )

    @property
    def numbers(self) -> set[int]:
        """The numbers of its partitions."""
        return {place.partition for place in self.assigned}

    def _run(self) -> None:
        source = self.log.source(self.topics, group=self.group, positions=self.rows.load)
        while not self._stop.is_set():
            records: list[Record] = []
            with suppress(EventLogUnavailableError):
                records = source.poll(max_records=50, timeout_s=0.1)
            self.assigned = source.assignment()
            if records:
                if not self.go_on.is_set():
                    self.held = records
                    self.is_held.set()
                    self.go_on.wait()
                self._store(records, source.rewind)
        with suppress(EventLogUnavailableError):
            source.close()

    def _store(self, records: list[Record], rewind: Callable[[], None]) -> None:
        if self.rows.store(records):
            self.stored.extend(records)
        else:
            self.num_fenced += 1
            rewind()


@dataclass
class Stream:
    """Appends numbered records to all partitions until it is stopped."""

    log: EventLog
    topic: str
    acknowledged: list[bytes] = field(default_factory=list)
    num_refused: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> "Stream":
        """Begin."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, when everything is acknowledged or refused."""
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        sink = self.log.sink()
        number = 0
        while not self._stop.is_set():
            values = [str(number + one).encode() for one in range(20)]
            number += len(values)
            futures = [sink.append(self.topic, value.decode(), value) for value in values]
            for value, future in zip(values, futures, strict=True):
                try:
                    future.result()
                    self.acknowledged.append(value)
                except EventLogUnavailableError:
                    self.num_refused += 1
            time.sleep(0.02)
        sink.close()
