"""Records that must be durable while the log is not reachable: fsynced files, drained later.

A record is a frame (length, CRC-32, content) in an append-only segment. A torn tail is a record
that was never acknowledged, so it is skipped. A process holds a lock on the segment that it writes;
the kernel frees it with the process, so a successor drains what a killed one left.
"""

import fcntl
import json
import logging
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from tidemill.durable import sync_path
from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import EventSink, Position
from tidemill.eventlog.topics import check_record, check_topic

_log = logging.getLogger(__name__)

_HEAD = struct.Struct("<III")
"""Bytes of the head and of the payload, CRC-32 of both."""


@dataclass(frozen=True, slots=True)
class SpooledRecord:
    """A record that waits for the log."""

    topic: str
    key: str
    payload: bytes


class Spool:
    """A folder of segments; thread-safe, several processes may share it."""

    def __init__(self, folder: Path) -> None:
        """Open; what others left is there to drain.

        Raises:
            EventLogUnavailableError: the folder cannot be written.
        """
        self._folder = folder
        self._lock = threading.Lock()
        self._handle: int | None = None
        self._path: Path | None = None
        self._size = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EventLogUnavailableError(f"no spool in {folder}: {error}") from error

    def append(self, topic: str, key: str, payload: bytes) -> None:
        """Store a record; it is durable when this returns.

        Raises:
            EventLogError: a record that no log would take.
            EventLogUnavailableError: the disk refused; nothing was stored.
        """
        check_topic(topic)
        check_record(topic, key, payload)
        frame = _encode(SpooledRecord(topic, key, payload))
        with self._lock:
            try:
                handle = self._open_segment() if self._handle is None else self._handle
                _write_all(handle, frame)
                os.fdatasync(handle)
            except OSError as error:
                self._abandon_tail()
                raise EventLogUnavailableError(
                    f"cannot write to the spool {self._folder}: {error}"
                ) from error
            self._size += len(frame)

    def drain(self, sink: EventSink) -> int:
        """Append everything to the log and return how many records it acknowledged.

        A record is deleted only after that, so one may reach the log twice when the process dies
        in between. What the log refuses stays, and is said in the process's own log.

        Raises:
            EventLogUnavailableError: the folder cannot be read or written.
        """
        try:
            with _locked(self._folder / "drain.lock") as is_mine:
                if not is_mine:
                    return 0
                with self._lock:
                    self._close_segment()
                return sum(self._drain_segment(path, sink) for path in self._segments())
        except OSError as error:
            raise EventLogUnavailableError(f"cannot drain {self._folder}: {error}") from error

    def num_pending(self) -> int:
        """Count the records that wait, those of other processes too."""
        return sum(len(_read_segment(path)) for path in self._segments())

    def close(self) -> None:
        """End the segment; what it holds stays."""
        with self._lock:
            self._close_segment()

    def _segments(self) -> list[Path]:
        # Names begin with their time, so that older records go first.
        return sorted(self._folder.glob("*.segment"))

    def _drain_segment(self, path: Path, sink: EventSink) -> int:
        with _locked(path, create=False) as is_mine:
            # Not mine: another process still writes it.
            if not is_mine:
                return 0
            records = _read_segment(path)
            futures = [_append(sink, record) for record in records]
            left: list[SpooledRecord] = []
            for record, future in zip(records, futures, strict=True):
                try:
                    future.result()
                except EventLogError as error:
                    if not left:
                        _log.warning("the spool keeps %s: %s", path.name, error)
                    left.append(record)
            self._keep(path, left, of=len(records))
            return len(records) - len(left)

    def _keep(self, path: Path, left: Sequence[SpooledRecord], *, of: int) -> None:
        if not left:
            path.unlink()
        elif len(left) < of:
            aside = path.with_suffix(".new")
            with aside.open("wb") as file:
                file.writelines(_encode(record) for record in left)
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        sync_path(self._folder)

    def _open_segment(self) -> int:
        name = f"{time.time_ns():020d}-{uuid4().hex[:8]}"
        aside, path = self._folder / f"{name}.fresh", self._folder / f"{name}.segment"
        handle = os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
        self._handle, self._path, self._size = handle, path, 0
        # Locked before it gets its name: no drain may meet it unlocked while it is written.
        fcntl.flock(handle, fcntl.LOCK_EX)
        aside.rename(path)
        sync_path(self._folder)
        return handle

    def _close_segment(self) -> None:
        handle, path = self._handle, self._path
        self._handle, self._path = None, None
        if path is not None and self._size == 0:
            path.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)

    def _abandon_tail(self) -> None:
        # A half-written frame would hide every later one.
        if self._handle is not None:
            with suppress(OSError):
                os.ftruncate(self._handle, self._size)
        with suppress(OSError):
            self._close_segment()


def _append(sink: EventSink, record: SpooledRecord) -> Future[Position]:
    try:
        return sink.append(record.topic, record.key, record.payload)
    except EventLogError as error:
        refused: Future[Position] = Future()
        refused.set_exception(error)
        return refused


def _encode(record: SpooledRecord) -> bytes:
    head = json.dumps([record.topic, record.key]).encode()
    checksum = crc32(record.payload, crc32(head))
    return _HEAD.pack(len(head), len(record.payload), checksum) + head + record.payload


def _read_segment(path: Path) -> list[SpooledRecord]:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    records: list[SpooledRecord] = []
    start = 0
    while start + _HEAD.size <= len(content):
        head_size, payload_size, checksum = _HEAD.unpack_from(content, start)
        middle = start + _HEAD.size + head_size
        end = middle + payload_size
        head, payload = content[middle - head_size : middle], content[middle:end]
        # A torn tail: the last record was not acknowledged.
        if end > len(content) or crc32(payload, crc32(head)) != checksum:
            break
        topic, key = json.loads(head)
        records.append(SpooledRecord(topic, key, payload))
        start = end
    return records


@contextmanager
def _locked(path: Path, *, create: bool = True) -> Iterator[bool]:
    try:
        handle = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        if create:
            raise
        # Drained by another process meanwhile.
        yield False
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)


def _write_all(handle: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
