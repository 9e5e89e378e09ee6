"""The embedded log: durable, ordered, on one machine, with nothing to install.

One SQLite file a topic. Several processes may append and read at once; each has one writer thread.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from tidemill.errors import EventLogError
from tidemill.eventlog.appending import find_flaws, refused, with_flaws
from tidemill.eventlog.base import (
    Appended,
    Bounds,
    Drift,
    EventSink,
    EventSource,
    NewRecord,
    Position,
    PositionLoader,
    Record,
)
from tidemill.eventlog.embedded_files import create_topic, topic_path
from tidemill.eventlog.embedded_source import EmbeddedSource
from tidemill.eventlog.embedded_store import TopicFile
from tidemill.eventlog.embedded_writer import Writer
from tidemill.eventlog.topics import check_topic
from tidemill.settings import EmbeddedLogSettings

T = TypeVar("T")

_RETAIN_AT_ONCE_S = 0.1
_RETAIN_PAUSE_S = 0.002
"""Longer than the sleep of those that wait for the file's lock."""


class EmbeddedSink:
    """Implements `EventSink` on the writer of its log."""

    def __init__(self, writer: Writer) -> None:
        """Share the writer."""
        self._writer = writer
        self._under_way: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        """Append a record; the future is done once the record is durable.

        The future fails with `EventLogUnavailableError` when nothing was stored, with another
        `EventLogError` when the topic does not exist or the record is too large.
        """
        record = NewRecord(key, value)
        flaws = find_flaws(topic, [record])
        if flaws:
            return refused(flaws[0])
        return self._follow(lambda: self._writer.submit(topic, record))

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        """Append records of one topic; the future is done once all are durable or given up."""
        flaws = find_flaws(topic, records)
        if not flaws:
            return self._follow(lambda: self._writer.submit_all(topic, records))
        good = [record for index, record in enumerate(records) if index not in flaws]
        stored = self._follow(lambda: self._writer.submit_all(topic, good))
        return with_flaws(stored, flaws)

    def close(self) -> None:
        """Wait for what is under way."""
        with self._lock:
            self._closed = True
            under_way = tuple(self._under_way)
        wait(under_way)

    def _follow(self, submit: Callable[[], Future[T]]) -> Future[T]:
        with self._lock:
            if self._closed:
                raise EventLogError("the sink is closed; append before close")
            future = submit()
            self._under_way.add(future)
        future.add_done_callback(self._forget)
        return future

    def _forget(self, future: Future[Any]) -> None:
        with self._lock:
            self._under_way.discard(future)


class EmbeddedLog:
    """Implements `EventLog` on a folder."""

    def __init__(self, folder: Path, settings: EmbeddedLogSettings) -> None:
        """Remember where; files are opened when needed."""
        self._folder = folder
        self._settings = settings
        self._files: dict[str, TopicFile] = {}
        self._writer: Writer | None = None
        self._lock = threading.Lock()

    def create_topics(self, topics: tuple[str, ...]) -> None:
        """Create what is missing; a topic that is there keeps its number of partitions.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: the folder cannot be written.
        """
        for topic in topics:
            create_topic(self._folder, topic, self._settings.num_partitions)

    def find_drift(self, topics: tuple[str, ...]) -> list[Drift]:
        """Return which topics are missing, and which have another number of partitions.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: a file cannot be read.
        """
        wanted, drifts = self._settings.num_partitions, []
        for topic in topics:
            if not topic_path(self._folder, check_topic(topic)).exists():
                drifts.append(Drift(topic, "topic", "missing", "there", True))
                continue
            found = len(self.bounds(topic))
            if found != wanted:
                drifts.append(Drift(topic, "partitions", str(found), str(wanted), False))
        return drifts

    def settle_topics(self, topics: tuple[str, ...]) -> list[Drift]:
        """Create what is missing; return what has another number of partitions.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: the folder cannot be written.
        """
        self.create_topics(topics)
        return self.find_drift(topics)

    def sink(self) -> EventSink:
        """Return a new sink; all sinks of a log share one writer thread."""
        with self._lock:
            if self._writer is None:
                self._writer = Writer(self._folder, linger_s=self._settings.group_commit_ms / 1000)
            return EmbeddedSink(self._writer)

    def source(
        self, topics: tuple[str, ...], *, group: str, positions: PositionLoader
    ) -> EventSource:
        """Join a group; partition n of every topic goes to the same member.

        Raises:
            EventLogError: a topic does not exist.
            EventLogUnavailableError: the files cannot be opened.
        """
        return EmbeddedSource(
            self._folder,
            topics,
            group=group,
            lease_s=self._settings.lease_s,
            positions=positions,
        )

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Return what each partition holds now.

        Raises:
            EventLogError: the topic does not exist.
            EventLogUnavailableError: the file cannot be read.
        """
        with self._lock:
            return self._file(topic).bounds()

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        """Read without a group: for the ledger, replay and tools.

        Raises:
            EventLogError: the topic does not exist.
            EventLogUnavailableError: the file cannot be read.
        """
        with self._lock:
            return self._file(topic).read(partition, offset=offset, max_records=max_records)

    def retain(self, topic: str, committed: Mapping[int, int], *, now: datetime) -> int:
        """Remove the oldest records of a topic that are past the declared retention.

        In small groups with pauses between them, so that appending goes on; then the free space
        goes back to the disk, in small steps too. A call ends after a tenth of a second, whatever
        is left.

        Raises:
            EventLogError: the topic does not exist.
            EventLogUnavailableError: the file cannot be read or written.
        """
        removed = 0
        deadline = time.monotonic() + _RETAIN_AT_ONCE_S
        while time.monotonic() < deadline:
            with self._lock:
                number = self._remove_some(self._file(topic), committed, now)
                given_back = 0 if number else self._file(topic).give_back()
            if number == given_back == 0:
                break
            removed += number
            time.sleep(_RETAIN_PAUSE_S)
        return removed

    def close(self) -> None:
        """Store what is under way and close the files."""
        with self._lock:
            writer, self._writer = self._writer, None
            files, self._files = self._files, {}
        if writer is not None:
            writer.close()
        for file in files.values():
            file.close()

    def _remove_some(self, file: TopicFile, committed: Mapping[int, int], now: datetime) -> int:
        age_s, size = self._settings.retention_s, self._settings.retention_bytes
        number = 0
        if age_s is not None:
            cut_us = int((now.timestamp() - age_s) * 1e6)
            number = file.remove_oldest(committed, older_than_us=cut_us)
        if number == 0 and size is not None:
            excess = file.used_bytes() - size
            number = file.remove_oldest(committed, max_bytes=excess) if excess > 0 else 0
        return number

    def _file(self, topic: str) -> TopicFile:
        file = self._files.get(topic)
        if file is None:
            file = self._files[topic] = TopicFile(self._folder, topic)
        return file
