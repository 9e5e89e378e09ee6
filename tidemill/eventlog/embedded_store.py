"""One topic of the embedded log: a SQLite file with its records and the ends of its partitions.

WAL with `synchronous=FULL`: a commit returns after its bytes are on the disk (one fdatasync).
"""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import Bounds, NewRecord, Position, Record
from tidemill.eventlog.embedded_files import topic_path
from tidemill.eventlog.topics import partition_of

_BUSY_TIMEOUT_S = 10.0
_PARTITION_BITS = 40
"""A row's id is partition * 2^40 + offset, so that one B-tree holds each partition in order."""

_MAX_REMOVED = 500
_MAX_REMOVED_BYTES = 4 << 20
_GIVEN_BACK_PAGES = 256
"""At most so much goes at once, for the sake of those that wait for the lock."""

_ROWS_AT_ONCE = 64
"""Rows of one statement: whatever runs beside it in Python may go first after each."""

SPARE_BYTES = 4 << 20
"""Free space that a file keeps, so that it does not shrink and grow all the time."""


class TopicFile:
    """A connection to a topic; used by one thread at a time, many processes may have one."""

    def __init__(
        self, folder: Path, topic: str, *, lock_timeout_s: float = _BUSY_TIMEOUT_S
    ) -> None:
        """Open.

        Args:
            folder: where the topics lie.
            topic: its name.
            lock_timeout_s: longest wait for other processes that append.

        Raises:
            EventLogError: there is no such topic.
            EventLogUnavailableError: the file cannot be opened.
        """
        self.topic = topic
        self._lock_timeout_s = lock_timeout_s
        self._path = topic_path(folder, topic)
        if not self._path.exists():
            raise EventLogError(f"no topic {topic!r} in {folder}; create_topics makes it")
        try:
            self._lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
            self._connection = sqlite3.connect(
                self._path,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("PRAGMA synchronous=FULL")
            rows = self._connection.execute("SELECT count(*) FROM partitions").fetchone()
        except (OSError, sqlite3.Error) as error:
            raise EventLogUnavailableError(f"cannot open {self._path}: {error}") from error
        self.num_partitions: int = rows[0]

    def append(self, records: Sequence[NewRecord], *, now_us: int) -> list[Position]:
        """Store a group of records, all or none, and return their places once they are durable.

        The append time is `now_us` (microseconds since 1970), or later where the partition's last
        record is later.

        Raises:
            EventLogUnavailableError: nothing was stored.
        """
        try:
            with self._exclusive(), self._transaction():
                return self._insert(records, now_us)
        except sqlite3.Error as error:
            raise EventLogUnavailableError(
                f"cannot append to {self._path}: {error}; is the disk full?"
            ) from error

    def read(self, partition: int, *, offset: int, max_records: int) -> list[Record]:
        """Return the records of a partition from an offset on, in order.

        Raises:
            EventLogUnavailableError: the file cannot be read.
        """
        start = partition << _PARTITION_BITS
        rows = self._select(
            "SELECT id, key, value, appended_us FROM records"
            " WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
            (start + max(offset, 0), start + (1 << _PARTITION_BITS), max_records),
        )
        return [
            Record(self.topic, partition, row[0] - start, row[1], row[2], _moment(row[3]))
            for row in rows
        ]

    def bounds(self) -> dict[int, Bounds]:
        """Return what each partition holds.

        Raises:
            EventLogUnavailableError: the file cannot be read.
        """
        rows = self._select("SELECT partition, first, next FROM partitions ORDER BY partition", ())
        return {row[0]: Bounds(row[1], row[2]) for row in rows}

    def remove_oldest(
        self,
        committed: Mapping[int, int],
        *,
        older_than_us: int | None = None,
        max_bytes: int = _MAX_REMOVED_BYTES,
    ) -> int:
        """Remove a small group of the oldest records, all or none; return how many.

        Small, so that whoever appends waits for milliseconds.

        Args:
            committed: for each partition the first offset that must stay; others stay whole.
            older_than_us: only records appended before (microseconds since 1970); None = any.
            max_bytes: no further record once so many bytes go.

        Raises:
            EventLogUnavailableError: nothing was removed.
        """
        ends = self._oldest(committed, older_than_us, min(max_bytes, _MAX_REMOVED_BYTES))
        if not ends:
            return 0
        removed = 0
        try:
            with self._exclusive(), self._transaction():
                for partition, end in ends.items():
                    start = partition << _PARTITION_BITS
                    removed += self._connection.execute(
                        "DELETE FROM records WHERE id >= ? AND id < ?", (start, start + end)
                    ).rowcount
                    # Another process may have removed more meanwhile.
                    self._connection.execute(
                        "UPDATE partitions SET first = max(first, ?) WHERE partition = ?",
                        (end, partition),
                    )
        except sqlite3.Error as error:
            raise EventLogUnavailableError(
                f"cannot remove old records of {self._path}: {error}"
            ) from error
        return removed

    def give_back(self, *, spare_bytes: int = SPARE_BYTES) -> int:
        """Give a little free space back to the disk (at the next checkpoint); return the bytes.

        Raises:
            EventLogUnavailableError: nothing was given back.
        """
        size = self._pragma("page_size")
        spare_pages = self._pragma("freelist_count") - spare_bytes // size
        number = min(spare_pages, _GIVEN_BACK_PAGES)
        if number <= 0:
            return 0
        before = self._pragma("page_count")
        try:
            with self._exclusive():
                # This method alone asks for all rows without columns: each moves one page.
                self._connection.executescript(f"PRAGMA incremental_vacuum({number})")
        except sqlite3.Error as error:
            raise EventLogUnavailableError(f"cannot shrink {self._path}: {error}") from error
        return max(0, before - self._pragma("page_count")) * size

    def used_bytes(self) -> int:
        """Return how much of the file is in use; what was removed leaves free pages in it.

        Raises:
            EventLogUnavailableError: the file cannot be read.
        """
        used_pages = self._pragma("page_count") - self._pragma("freelist_count")
        return used_pages * self._pragma("page_size")

    def version(self) -> int:
        """Return a number that changes when another connection has committed; cheap."""
        return self._pragma("data_version")

    def close(self) -> None:
        """Close; the last one to close moves the WAL into the database."""
        try:
            with self._exclusive():
                self._connection.close()
        except EventLogUnavailableError:
            self._connection.close()
        os.close(self._lock)

    def _insert(self, records: Sequence[NewRecord], now_us: int) -> list[Position]:
        ends = {
            row[0]: [row[1], max(now_us, row[2])]
            for row in self._connection.execute(
                "SELECT partition, next, last_appended_us FROM partitions"
            )
        }
        moments = {partition: _moment(end[1]) for partition, end in ends.items()}
        rows: list[tuple[int, str, bytes, int]] = []
        places: list[Position] = []
        touched: set[int] = set()
        for record in records:
            partition = partition_of(record.key, self.num_partitions)
            end = ends[partition]
            offset, appended_us = end
            end[0] += 1
            touched.add(partition)
            row_id = (partition << _PARTITION_BITS) + offset
            rows.append((row_id, record.key, record.value, appended_us))
            places.append(Position(self.topic, partition, offset, moments[partition]))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            some = rows[start : start + _ROWS_AT_ONCE]
            self._connection.execute(_insertion(len(some)), list(chain.from_iterable(some)))
        self._connection.executemany(
            "UPDATE partitions SET next = ?, last_appended_us = ? WHERE partition = ?",
            [(*ends[partition], partition) for partition in touched],
        )
        return places

    def _oldest(
        self, committed: Mapping[int, int], older_than_us: int | None, max_bytes: int
    ) -> dict[int, int]:
        """Return, for each partition, the offset before which a small group of the oldest lies."""
        found: list[tuple[int, int, int, int]] = []
        for partition, offset in committed.items():
            start = partition << _PARTITION_BITS
            rows = self._select(
                "SELECT appended_us, id, length(value) FROM records"
                " WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (start, start + offset, _MAX_REMOVED),
            )
            found += [(row[0], partition, row[1] - start, row[2]) for row in rows]
        ends: dict[int, int] = {}
        size = 0
        for appended_us, partition, offset, num_bytes in sorted(found)[:_MAX_REMOVED]:
            if older_than_us is not None and appended_us >= older_than_us:
                break
            ends[partition] = offset + 1
            size += num_bytes
            if size >= max_bytes:
                break
        return ends

    def _pragma(self, name: str) -> int:
        number: int = self._select(f"PRAGMA {name}", ())[0][0]
        return number

    def _select(self, statement: str, values: tuple[int, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise EventLogUnavailableError(f"cannot read {self._path}: {error}") from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        # Writers queue here and not in SQLite, whose waiting sleeps up to 0.1 s, and a checkpoint
        # (part of a commit or of a close) never meets another writer.
        deadline = time.monotonic() + self._lock_timeout_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise EventLogUnavailableError(
                        f"another process holds {self._path} for {self._lock_timeout_s:g} s"
                    ) from error
                time.sleep(0.0005)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


@cache
def _insertion(num_rows: int) -> str:
    return f"INSERT INTO records VALUES {', '.join(['(?, ?, ?, ?)'] * num_rows)}"  # noqa: S608  places


def _moment(microseconds: int) -> datetime:
    # Through whole seconds: a float would lose the last microsecond.
    seconds, rest = divmod(microseconds, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
