"""A power cut, as the disk sees it: the write-ahead log ends at any byte, or in rubbish."""

import random
import shutil
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidemill.eventlog.base import NewRecord
from tidemill.eventlog.embedded_files import create_topic
from tidemill.eventlog.embedded_store import TopicFile
from tidemill.eventlog.topics import partition_of

CUTS = 1_000
GROUPS = 90


@dataclass(frozen=True)
class Written:
    """A log as it was written, group by group."""

    folder: Path
    groups: list[list[NewRecord]]
    wal_sizes: list[int]
    """Length of the WAL when each group was acknowledged; 0 = already in the database."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A log of which the first third lies in the database and the rest in the WAL."""
    folder = tmp_path_factory.mktemp("written")
    create_topic(folder, "t", 2)
    file = TopicFile(folder, "t")
    generator = random.Random(11)
    groups, sizes = [], []
    number = 0
    for index in range(GROUPS):
        group = []
        for _ in range(generator.randint(1, 3)):
            value = f"{number}:".encode() + generator.randbytes(generator.choice((20, 200, 5_000)))
            group.append(NewRecord(f"k{number % 5}", value))
            number += 1
        file.append(group, now_us=1_000_000 + index)
        groups.append(group)
        sizes.append((folder / "t.db-wal").stat().st_size)
        if index == GROUPS // 3:
            file._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            sizes = [0] * len(sizes)
    saved = tmp_path_factory.mktemp("saved")
    for name in ("t.db", "t.db-wal"):
        shutil.copy(folder / name, saved / name)
    file.close()
    return Written(saved, groups, sizes)


def cut_points(size: int) -> list[int]:
    generator = random.Random(CUTS)
    return [0, size, *(generator.randrange(size + 1) for _ in range(CUTS - 2))]


def test_every_cut_leaves_a_whole_prefix_with_all_that_was_acknowledged(
    written: Written, tmp_path: Path
) -> None:
    database = (written.folder / "t.db").read_bytes()
    wal = (written.folder / "t.db-wal").read_bytes()
    generator = random.Random(5)
    seen = set()
    for number, cut in enumerate(cut_points(len(wal))):
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        (tmp_path / "t.db").write_bytes(database)
        rubbish = generator.randbytes(5_000) if number % 2 else b""
        (tmp_path / "t.db-wal").write_bytes(wal[:cut] + rubbish)
        survived = check_recovered(written, tmp_path)
        promised = sum(size <= cut for size in written.wal_sizes)
        assert survived == promised, (cut, survived, promised)
        seen.add(survived)
    # The cuts met most of the groups that lay in the WAL.
    assert len(seen) > 50


def check_recovered(written: Written, folder: Path) -> int:
    """Open what was left, compare it with a prefix of the groups, and return how many it has."""
    file = TopicFile(folder, "t")
    records = [file.read(number, offset=0, max_records=10_000) for number in (0, 1)]
    total = len(records[0]) + len(records[1])
    survived = count = 0
    while count < total:
        count += len(written.groups[survived])
        survived += 1
    assert count == total, "a group is there in part"
    prefix = [record for group in written.groups[:survived] for record in group]
    for partition in (0, 1):
        expected = [r for r in prefix if partition_of(r.key, 2) == partition]
        assert [r.value for r in records[partition]] == [r.value for r in expected]
        assert [r.offset for r in records[partition]] == list(range(len(expected)))
        assert file.bounds()[partition].end == len(expected)
    # The check is over, so its own checkpoint need not reach the disk.
    file._connection.execute("PRAGMA synchronous=OFF")
    file.close()
    return survived


def test_a_cut_log_goes_on_where_it_was(written: Written, tmp_path: Path) -> None:
    wal = (written.folder / "t.db-wal").read_bytes()
    for cut in cut_points(len(wal))[:20]:
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        shutil.copy(written.folder / "t.db", tmp_path / "t.db")
        (tmp_path / "t.db-wal").write_bytes(wal[:cut])
        file = TopicFile(tmp_path, "t")
        end = file.bounds()[0].end
        key = next(k for k in "abcdef" if partition_of(k, 2) == 0)
        [place] = file.append([NewRecord(key, b"after")], now_us=0)
        assert place.offset == end
        [last] = file.read(0, offset=end, max_records=2)
        assert last.value == b"after"
        file.close()
        connection = sqlite3.connect(tmp_path / "t.db")
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
