import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import Position
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.spool import Spool

AT = datetime(2026, 12, 1, tzinfo=UTC)


@dataclass
class Sink:
    """Takes everything but the named payloads; an unreachable one takes nothing."""

    refused: frozenset[bytes] = frozenset()
    is_reachable: bool = True
    taken: list[tuple[str, str, bytes]] = field(default_factory=list)

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        future: Future[Position] = Future()
        if not self.is_reachable:
            future.set_exception(EventLogUnavailableError("away"))
        elif value in self.refused:
            raise EventLogError("not this one")
        else:
            self.taken.append((topic, key, value))
            future.set_result(Position(topic, 0, len(self.taken) - 1, AT))
        return future

    def close(self) -> None:
        """Nothing to release."""


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "spool")
    yield spool
    spool.close()


def segments(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "spool").glob("*.segment"))


def test_records_reach_the_log_in_their_order(spool: Spool, embedded_log: EmbeddedLog) -> None:
    embedded_log.create_topics(("t",))
    for number in range(20):
        spool.append("t", "schlüssel", str(number).encode())
    assert spool.num_pending() == 20
    sink = embedded_log.sink()
    assert spool.drain(sink) == 20
    assert spool.num_pending() == 0
    assert spool.drain(sink) == 0
    sink.close()
    [bounds] = [b for b in embedded_log.bounds("t").items() if b[1].end]
    records = embedded_log.read("t", bounds[0], offset=0, max_records=99)
    assert [(r.key, int(r.value)) for r in records] == [("schlüssel", n) for n in range(20)]


def test_a_drained_spool_leaves_no_files(spool: Spool, tmp_path: Path) -> None:
    spool.append("t", "k", b"v")
    spool.drain(Sink())
    assert segments(tmp_path) == []
    spool.append("t", "k", b"v")
    assert len(segments(tmp_path)) == 1


def test_records_of_a_dead_process_are_drained_by_the_next(tmp_path: Path) -> None:
    first = Spool(tmp_path / "spool")
    first.append("t", "k", b"left behind")
    first.close()
    second = Spool(tmp_path / "spool")
    sink = Sink()
    assert second.drain(sink) == 1
    assert sink.taken == [("t", "k", b"left behind")]


def test_what_another_process_still_writes_is_left_to_it(tmp_path: Path) -> None:
    living, other = Spool(tmp_path / "spool"), Spool(tmp_path / "spool")
    living.append("t", "k", b"mine")
    assert other.drain(Sink()) == 0
    assert living.drain(Sink()) == 1
    living.close()
    other.close()


def test_an_unreachable_log_takes_nothing_and_nothing_is_lost(spool: Spool) -> None:
    for number in range(3):
        spool.append("t", "k", str(number).encode())
    sink = Sink(is_reachable=False)
    assert spool.drain(sink) == 0
    spool.append("t", "k", b"3")
    sink.is_reachable = True
    assert spool.drain(sink) == 4
    assert [value for _, _, value in sink.taken] == [b"0", b"1", b"2", b"3"]


def test_only_what_the_log_refused_stays(
    spool: Spool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for payload in (b"a", b"bad", b"c"):
        spool.append("t", "k", payload)
    sink = Sink(refused=frozenset({b"bad"}))
    assert spool.drain(sink) == 2
    assert "not this one" in caplog.text
    assert spool.drain(sink) == 0
    assert spool.num_pending() == 1
    sink.refused = frozenset()
    assert spool.drain(sink) == 1
    assert [value for _, _, value in sink.taken] == [b"a", b"c", b"bad"]
    assert segments(tmp_path) == []


def test_a_torn_tail_loses_only_the_record_that_was_torn(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    ends = []
    for payload in (b"one", b"two" * 50, b"three"):
        spool.append("t", "k", payload)
        ends.append(segments(tmp_path)[0].stat().st_size)
    spool.close()
    [path] = segments(tmp_path)
    whole = path.read_bytes()
    for cut in range(len(whole) + 1):
        # Rubbish that differs in each byte from what was lost: random bytes can restore a record.
        rubbish = bytes(byte ^ 0xFF for byte in whole[cut : cut + 8]).ljust(8, b"\xa5")
        for tail in (b"", rubbish):
            path.write_bytes(whole[:cut] + tail)
            assert Spool(tmp_path / "spool").num_pending() == sum(end <= cut for end in ends)


def test_a_half_written_record_does_not_hide_later_ones(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.append("t", "k", b"before")
    # As a full disk does: the handle takes some bytes, then refuses.
    handle = spool._handle
    assert handle is not None
    os.write(handle, b"half")
    os.close(handle)
    with pytest.raises(EventLogUnavailableError, match="cannot write"):
        spool.append("t", "k", b"refused")
    spool.append("t", "k", b"after")
    sink = Sink()
    assert spool.drain(sink) == 2
    assert [value for _, _, value in sink.taken] == [b"before", b"after"]


def test_a_record_that_no_log_takes_is_refused_at_once(spool: Spool) -> None:
    with pytest.raises(EventLogError, match="at most"):
        spool.append("t", "k", bytes(2 << 20))
    with pytest.raises(EventLogError, match="not a topic"):
        spool.append("/", "k", b"v")
    assert spool.num_pending() == 0


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EventLogUnavailableError, match="no spool"):
        Spool(tmp_path / "file" / "spool")
    spool = Spool(tmp_path / "spool")
    (tmp_path / "spool").rmdir()
    with pytest.raises(EventLogUnavailableError, match="cannot write"):
        spool.append("t", "k", b"v")
    with pytest.raises(EventLogUnavailableError, match="cannot drain"):
        spool.drain(Sink())


def test_an_unused_spool_leaves_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool._open_segment()
    spool.close()
    assert segments(tmp_path) == []
