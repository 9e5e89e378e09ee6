"""The embedded log forgets what is old or too much, and nothing that somebody has yet to read."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tidemill.eventlog.base import Bounds, NewRecord
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.embedded_store import TopicFile
from tidemill.settings import EmbeddedLogSettings

TOPIC = "t"
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def make(folder: Path, *, partitions: int = 1, **limits: float) -> EmbeddedLog:
    settings = EmbeddedLogSettings.model_validate({"num_partitions": partitions} | limits)
    log = EmbeddedLog(folder, settings)
    log.create_topics((TOPIC,))
    return log


def write(folder: Path, ages_s: list[float], *, num_bytes: int = 10) -> None:
    file = TopicFile(folder, TOPIC)
    for number, age_s in enumerate(ages_s):
        moment = NOW - timedelta(seconds=age_s)
        record = NewRecord(f"k{number}", bytes([number % 256]) * num_bytes)
        file.append([record], now_us=int(moment.timestamp() * 1e6))
    file.close()


def retain(log: EmbeddedLog, committed: dict[int, int]) -> int:
    removed = 0
    while number := log.retain(TOPIC, committed, now=NOW):
        removed += number
    return removed


def test_without_a_limit_nothing_is_removed(tmp_path: Path) -> None:
    log = make(tmp_path)
    write(tmp_path, [10**6] * 5)
    assert retain(log, {0: 5}) == 0
    log.close()


@pytest.mark.parametrize(
    ("committed", "first"), [({0: 10}, 6), ({0: 4}, 4), ({0: 0}, 0), ({}, 0), ({1: 10}, 0)]
)
def test_what_is_old_goes_when_it_has_been_read(
    tmp_path: Path, committed: dict[int, int], first: int
) -> None:
    log = make(tmp_path, retention_s=100)
    # Six older than the limit, one just as old, three younger.
    write(tmp_path, [150, 140, 130, 120, 110, 101, 100, 99, 1, 0])
    assert retain(log, committed) == first
    assert log.bounds(TOPIC) == {0: Bounds(first, 10)}
    kept = log.read(TOPIC, 0, offset=0, max_records=100)
    assert [record.offset for record in kept] == list(range(first, 10))
    assert retain(log, committed) == 0
    # What comes next goes on where it was.
    write(tmp_path, [0])
    assert log.bounds(TOPIC)[0].end == 11
    log.close()


def test_what_is_too_much_goes_oldest_first_over_all_partitions(tmp_path: Path) -> None:
    log = make(tmp_path, partitions=2, retention_bytes=400_000)
    write(tmp_path, [float(1000 - number) for number in range(100)], num_bytes=10_000)
    ends = {number: held.end for number, held in log.bounds(TOPIC).items()}
    assert retain(log, ends) > 0
    file = TopicFile(tmp_path, TOPIC)
    assert file.used_bytes() <= 400_000
    kept = [
        record for number in ends for record in log.read(TOPIC, number, offset=0, max_records=1000)
    ]
    assert 0 < len(kept) < 45
    newest = sorted(record.value[0] for record in kept)
    assert newest == list(range(100 - len(kept), 100))
    file.close()
    log.close()


def test_the_size_limit_spares_what_was_not_read(tmp_path: Path) -> None:
    log = make(tmp_path, retention_bytes=65_536)
    write(tmp_path, [0.0] * 30, num_bytes=10_000)
    assert retain(log, {0: 3}) == 3
    assert log.bounds(TOPIC) == {0: Bounds(3, 30)}
    log.close()


def test_freed_space_is_used_again(tmp_path: Path) -> None:
    log = make(tmp_path, retention_s=100)
    write(tmp_path, [200.0] * 50, num_bytes=10_000)
    file = TopicFile(tmp_path, TOPIC)
    before = file._connection.execute("PRAGMA page_count").fetchone()
    assert retain(log, {0: 50}) == 50
    write(tmp_path, [0.0] * 40, num_bytes=10_000)
    assert file._connection.execute("PRAGMA page_count").fetchone() == before
    file.close()
    log.close()


def test_appending_goes_on_while_much_is_removed(tmp_path: Path) -> None:
    log = make(tmp_path, retention_s=100)
    file = TopicFile(tmp_path, TOPIC)
    old = int((NOW - timedelta(seconds=1000)).timestamp() * 1e6)
    for _ in range(20):
        file.append([NewRecord("k", b"x" * 100)] * 1000, now_us=old)
    cleaner = threading.Thread(target=retain, args=(log, {0: 20_000}))
    cleaner.start()
    sink = make(tmp_path).sink()
    places = [sink.append(TOPIC, "k", b"new").result(10) for _ in range(50)]
    cleaner.join()
    sink.close()
    assert [place.offset for place in places] == list(range(20_000, 20_050))
    assert log.bounds(TOPIC) == {0: Bounds(20_000, 20_050)}
    file.close()
    log.close()


def test_two_that_remove_at_once_remove_each_record_once(tmp_path: Path) -> None:
    logs = [make(tmp_path, retention_s=100) for _ in range(2)]
    file = TopicFile(tmp_path, TOPIC)
    old = int((NOW - timedelta(seconds=1000)).timestamp() * 1e6)
    file.append([NewRecord("k", b"x")] * 5000, now_us=old)
    removed: list[int] = []
    threads = [
        threading.Thread(target=lambda log=log: removed.append(retain(log, {0: 5000})))
        for log in logs
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(removed) == 5000
    assert file.bounds() == {0: Bounds(5000, 5000)}
    file.close()
    for log in logs:
        log.close()
