"""Space that retention freed goes back to the disk, while others read and write."""

import sqlite3
import threading
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidemill.eventlog.base import NewRecord
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.embedded_files import topic_path
from tidemill.eventlog.embedded_store import SPARE_BYTES, TopicFile
from tidemill.settings import EmbeddedLogSettings

TOPIC = "t"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
OLD_US = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1e6)
NUM_BYTES = 10_000


def value(number: int) -> bytes:
    return f"{number:08}".encode() * (NUM_BYTES // 8)


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedLog:
    log = EmbeddedLog(tmp_path, EmbeddedLogSettings(num_partitions=1, retention_s=3600))
    log.create_topics((TOPIC,))
    return log


def write(folder: Path, first: int, count: int) -> None:
    file = TopicFile(folder, TOPIC)
    for start in range(first, first + count, 100):
        numbers = range(start, min(start + 100, first + count))
        file.append([NewRecord("k", value(number)) for number in numbers], now_us=OLD_US)
    file.close()


def size_of(folder: Path) -> int:
    """The file's size on the disk, after a checkpoint."""
    path = topic_path(folder, TOPIC)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return path.stat().st_size


def retain_all(log: EmbeddedLog, committed: int) -> None:
    """Call it as the worker does, until there is nothing left to do."""
    while log.retain(TOPIC, {0: committed}, now=NOW) or log._file(TOPIC).give_back():
        pass


def test_the_file_shrinks_after_retention_and_keeps_a_reserve(
    log: EmbeddedLog, tmp_path: Path
) -> None:
    write(tmp_path, 0, 3000)
    assert size_of(tmp_path) > 30_000_000
    retain_all(log, 2900)
    kept = 100 * NUM_BYTES
    assert kept + SPARE_BYTES < size_of(tmp_path) < kept + 2 * SPARE_BYTES
    assert log._file(TOPIC).used_bytes() < 2 * kept
    records = log.read(TOPIC, 0, offset=0, max_records=1000)
    assert [record.value for record in records] == [value(number) for number in range(2900, 3000)]
    log.close()
    with closing(sqlite3.connect(topic_path(tmp_path, TOPIC))) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_one_step_is_bounded_and_a_reserve_is_left_alone(log: EmbeddedLog, tmp_path: Path) -> None:
    write(tmp_path, 0, 1000)
    file = log._file(TOPIC)
    assert file.give_back() == 0
    while file.remove_oldest({0: 900}):
        pass
    given_back = file.give_back()
    # A mebibyte, and perhaps a page that told where the others were.
    assert 0 < given_back <= (1 << 20) + 4096
    while file.give_back():
        pass
    assert file.give_back() == 0
    assert file.give_back(spare_bytes=0) > 0
    log.close()


def test_a_file_of_before_keeps_its_size_and_is_no_error(log: EmbeddedLog, tmp_path: Path) -> None:
    write(tmp_path, 0, 1000)
    log.close()
    with closing(sqlite3.connect(topic_path(tmp_path, TOPIC), isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum=NONE")
        connection.execute("VACUUM")
    before = size_of(tmp_path)
    old = EmbeddedLog(tmp_path, EmbeddedLogSettings(num_partitions=1, retention_s=3600))
    retain_all(old, 900)
    assert len(old.read(TOPIC, 0, offset=0, max_records=1000)) == 100
    old.close()
    assert size_of(tmp_path) == before


def test_readers_and_writers_go_on_while_pages_move(log: EmbeddedLog, tmp_path: Path) -> None:
    write(tmp_path, 0, 2000)
    wrong: list[bytes] = []
    num_read = 0
    is_over = threading.Event()

    def read() -> None:
        nonlocal num_read
        file = TopicFile(tmp_path, TOPIC)
        while not is_over.is_set():
            for record in file.read(0, offset=1900, max_records=50):
                num_read += 1
                if record.value != value(record.offset):
                    wrong.append(record.value)
        file.close()

    def append() -> None:
        number = 2000
        while not is_over.is_set():
            write(tmp_path, number, 5)
            number += 5

    threads = [threading.Thread(target=read), threading.Thread(target=append)]
    for thread in threads:
        thread.start()
    retain_all(log, 1900)
    is_over.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert num_read > 0
    end = log.bounds(TOPIC)[0].end
    records = log.read(TOPIC, 0, offset=0, max_records=100_000)
    assert [record.offset for record in records] == list(range(1900, end))
    assert all(record.value == value(record.offset) for record in records)
    log.close()
