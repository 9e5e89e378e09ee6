"""The one thread of a process that appends to the embedded log.

Group commit: whatever is queued when the disk is free goes into one commit, so many callers share
one fdatasync. A future is done only after that commit.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice, repeat
from pathlib import Path
from typing import Any

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.appending import settle_one
from tidemill.eventlog.base import Appended, NewRecord, Position
from tidemill.eventlog.embedded_store import TopicFile

_MAX_GROUP_BYTES = 16 << 20
"""A larger group would hold the lock of the file, and the callers, for too long."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one call wants to have stored."""

    topic: str
    records: Sequence[NewRecord]
    settle: Callable[[list[Appended]], None]
    """Tells the caller what became of each record."""
    future: Future[Any]

    @property
    def num_bytes(self) -> int:
        return sum(len(record.value) for record in self.records)


class Writer:
    """Owns the appending connections and the thread; thread-safe."""

    def __init__(
        self,
        folder: Path,
        *,
        linger_s: float = 0.0,
        now_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Start the thread.

        Args:
            folder: where the topics lie.
            linger_s: longest wait for company before a commit.
            now_us: the clock, in microseconds since 1970.
        """
        self._folder = folder
        self._linger_s = linger_s
        self._now_us = now_us
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._files: dict[str, TopicFile] = {}
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    def submit(self, topic: str, record: NewRecord) -> Future[Position]:
        """Queue a record; the future is done once it is durable."""
        future: Future[Position] = Future()

        def settle(outcomes: list[Appended]) -> None:
            settle_one(future, outcomes[0])

        self._put(_Entry(topic, [record], settle, future))
        return future

    def submit_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        """Queue records that are stored together; the future is done once all are settled."""
        future: Future[list[Appended]] = Future()
        self._put(_Entry(topic, records, future.set_result, future))
        return future

    def close(self) -> None:
        """Store what is queued, then end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _put(self, entry: _Entry) -> None:
        with self._closing:
            if self._closed:
                raise EventLogError("the log is closed; append before close")
            self._queue.put(entry)

    def _run(self) -> None:
        is_open = True
        while is_open:
            group, is_open = self._next_group()
            by_topic: dict[str, list[_Entry]] = {}
            for entry in group:
                # A cancelled one was given up before it could be stored.
                if entry.future.set_running_or_notify_cancel():
                    by_topic.setdefault(entry.topic, []).append(entry)
            for topic, entries in by_topic.items():
                self._store(topic, entries)
        for file in self._files.values():
            file.close()

    def _next_group(self) -> tuple[list[_Entry], bool]:
        first = self._queue.get()
        if first is None:
            return [], False
        if self._linger_s:
            time.sleep(self._linger_s)
        group, size = [first], first.num_bytes
        while size < _MAX_GROUP_BYTES:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return group, True
            if entry is None:
                return group, False
            group.append(entry)
            size += entry.num_bytes
        return group, True

    def _store(self, topic: str, entries: list[_Entry]) -> None:
        records = [record for entry in entries for record in entry.records]
        outcomes: Iterator[Appended]
        try:
            outcomes = iter(self._open(topic).append(records, now_us=self._now_us()))
        except EventLogError as error:
            outcomes = repeat(error)
        except Exception as error:
            # The thread must live on, whatever one group met.
            outcomes = repeat(EventLogUnavailableError(f"cannot append to {topic}: {error!r}"))
        for entry in entries:
            entry.settle(list(islice(outcomes, len(entry.records))))

    def _open(self, topic: str) -> TopicFile:
        file = self._files.get(topic)
        if file is None:
            file = self._files[topic] = TopicFile(self._folder, topic)
        return file
