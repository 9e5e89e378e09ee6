import sqlite3
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import NewRecord
from tidemill.eventlog.embedded_files import create_topic, topic_path
from tidemill.eventlog.embedded_store import TopicFile

MICROSECONDS = 1_764_590_400_123_457


@pytest.fixture
def file(tmp_path: Path) -> TopicFile:
    create_topic(tmp_path, "t", 1)
    return TopicFile(tmp_path, "t")


def test_the_append_time_never_goes_back_when_the_clock_does(file: TopicFile) -> None:
    [first] = file.append([NewRecord("k", b"1")], now_us=MICROSECONDS)
    [second] = file.append([NewRecord("k", b"2")], now_us=MICROSECONDS - 5_000_000)
    assert first.appended_at == datetime(2025, 12, 1, 12, 0, 0, 123457, tzinfo=UTC)
    assert second.appended_at == first.appended_at
    file.close()


def test_a_group_is_stored_whole_or_not_at_all(file: TopicFile) -> None:
    file.append([NewRecord("k", b"1")], now_us=MICROSECONDS)
    impossible = NewRecord("k", object())  # type: ignore[arg-type]
    with pytest.raises(EventLogUnavailableError, match="cannot append"):
        file.append([NewRecord("k", b"2"), impossible], now_us=MICROSECONDS)
    assert file.bounds()[0].end == 1
    assert [record.value for record in file.read(0, offset=0, max_records=9)] == [b"1"]
    file.close()


def test_another_connection_sees_a_new_version(tmp_path: Path, file: TopicFile) -> None:
    other = TopicFile(tmp_path, "t")
    before = other.version()
    assert other.version() == before
    file.append([NewRecord("k", b"1")], now_us=MICROSECONDS)
    assert other.version() != before
    file.close()
    other.close()


def test_many_create_one_topic_at_once(tmp_path: Path) -> None:
    threads = [threading.Thread(target=create_topic, args=(tmp_path, "t", 3)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["t.db"]
    file = TopicFile(tmp_path, "t")
    assert file.num_partitions == 3
    file.close()


def test_every_commit_is_synced(file: TopicFile) -> None:
    connection = file._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    file.close()


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="no topic 'x'"):
        TopicFile(tmp_path, "x")
    topic_path(tmp_path, "x").write_text("not a database, but long enough to look at" * 20)
    with pytest.raises(EventLogUnavailableError, match="cannot open"):
        TopicFile(tmp_path, "x")
    (tmp_path / "file").touch()
    with pytest.raises(EventLogUnavailableError, match="cannot create"):
        create_topic(tmp_path / "file", "x", 1)


def test_what_cannot_be_read_is_said(tmp_path: Path, file: TopicFile) -> None:
    with sqlite3.connect(topic_path(tmp_path, "t")) as connection:
        connection.execute("DROP TABLE records")
    connection.close()
    with pytest.raises(EventLogUnavailableError, match="cannot read"):
        file.read(0, offset=0, max_records=1)
    file.close()


def test_a_lock_held_for_too_long_is_said(tmp_path: Path, file: TopicFile) -> None:
    other = TopicFile(tmp_path, "t", lock_timeout_s=0.05)
    with (
        file._exclusive(),
        pytest.raises(EventLogUnavailableError, match="another process holds"),
    ):
        other.append([NewRecord("k", b"1")], now_us=MICROSECONDS)
    assert other.append([NewRecord("k", b"1")], now_us=MICROSECONDS)[0].offset == 0
    file.close()
    other.close()
