import sqlite3
import threading
import time
from concurrent.futures import wait
from pathlib import Path

import pytest

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import NewRecord
from tidemill.eventlog.embedded_files import create_topic, topic_path
from tidemill.eventlog.embedded_store import TopicFile
from tidemill.eventlog.embedded_writer import Writer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for topic in ("a", "b"):
        create_topic(tmp_path, topic, 1)
    return tmp_path


def test_what_waits_while_the_disk_is_busy_goes_into_one_commit(folder: Path) -> None:
    calls: list[int] = []

    def now_us() -> int:
        calls.append(1)
        return len(calls)

    blocker = TopicFile(folder, "a")
    writer = Writer(folder, now_us=now_us)
    with blocker._exclusive():
        first = writer.submit("a", NewRecord("k", b"0"))
        while not calls:
            time.sleep(0.001)
        rest = [
            writer.submit("a", NewRecord("k", str(number).encode())) for number in range(1, 100)
        ]
    wait([first, *rest])
    assert [future.result().offset for future in (first, *rest)] == list(range(100))
    # The clock is read once a commit.
    assert len(calls) == 2
    writer.close()
    blocker.close()


def test_a_group_holds_no_more_than_its_bytes(folder: Path) -> None:
    calls: list[int] = []
    blocker = TopicFile(folder, "a")
    writer = Writer(folder, now_us=lambda: len(calls.append(1) or calls))  # type: ignore[func-returns-value]
    with blocker._exclusive():
        futures = [writer.submit("a", NewRecord("k", b"0"))]
        while not calls:
            time.sleep(0.001)
        futures += [writer.submit("a", NewRecord("k", bytes(1 << 20))) for _ in range(20)]
    wait(futures)
    assert len(calls) == 3
    writer.close()
    blocker.close()


def test_a_cancelled_append_stores_nothing(folder: Path) -> None:
    blocker = TopicFile(folder, "a")
    calls: list[int] = []
    writer = Writer(folder, now_us=lambda: len(calls.append(1) or calls))  # type: ignore[func-returns-value]
    with blocker._exclusive():
        first = writer.submit("a", NewRecord("k", b"1"))
        while not calls:
            time.sleep(0.001)
        second = writer.submit("a", NewRecord("k", b"2"))
        assert second.cancel()
        # Too late for this one: it is under way.
        assert not first.cancel()
    writer.close()
    assert first.result().offset == 0
    assert blocker.bounds()[0].end == 1
    blocker.close()


def test_a_topic_that_fails_leaves_the_others_alone(folder: Path) -> None:
    with sqlite3.connect(topic_path(folder, "b")) as connection:
        connection.execute("DROP TABLE records")
    connection.close()
    writer = Writer(folder)
    broken, missing, good = (
        writer.submit(topic, NewRecord("k", b"v")) for topic in ("b", "c", "a")
    )
    with pytest.raises(EventLogUnavailableError, match="cannot append"):
        broken.result()
    with pytest.raises(EventLogError, match="no topic 'c'"):
        missing.result()
    assert good.result().offset == 0
    writer.close()


def test_the_thread_outlives_a_surprise(folder: Path) -> None:
    answers = iter([1, None, 2])
    writer = Writer(folder, now_us=lambda: next(answers))  # type: ignore[arg-type,return-value]
    assert writer.submit("a", NewRecord("k", b"1")).result().offset == 0
    with pytest.raises(EventLogUnavailableError, match="TypeError"):
        writer.submit("a", NewRecord("k", b"2")).result()
    assert writer.submit("a", NewRecord("k", b"3")).result().offset == 1
    writer.close()


def test_lingering_gathers_company(folder: Path) -> None:
    writer = Writer(folder, linger_s=0.05)
    futures = [writer.submit("a", NewRecord("k", b"v")) for _ in range(50)]
    wait(futures)
    assert len({future.result().appended_at for future in futures}) == 1
    writer.close()


def test_nothing_is_taken_after_close_and_nothing_before_it_is_lost(folder: Path) -> None:
    writer = Writer(folder)
    futures = [writer.submit("a", NewRecord("k", b"v")) for _ in range(200)]
    closers = [threading.Thread(target=writer.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    assert all(future.done() for future in futures)
    with pytest.raises(EventLogError, match="closed"):
        writer.submit("a", NewRecord("k", b"v"))
