"""Processes that append are killed at random moments: what was acknowledged is there, once."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.eventlog.appender import TOPIC
from tests.servers import missing_server
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.spool import Spool
from tidemill.settings import EmbeddedLogSettings

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "tests.integration.eventlog.appender"]
STRACE = ["strace", "-f", "-qq", "-e", "trace=fdatasync,fsync,write", "-o"]


def start(kind: str, folder: Path, name: str, output: Path) -> "subprocess.Popen[bytes]":
    with output.open("ab") as file:
        return subprocess.Popen([*COMMAND, kind, str(folder), name, "1000000"], stdout=file)


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()


def wait_for_words(outputs: list[Path], count: int) -> None:
    wait_for(lambda: all(len(acknowledged(output)) > count for output in outputs))


def wait_for(condition: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the processes did not get on"
        time.sleep(0.01)


def acknowledged(output: Path) -> list[str]:
    # A last line without its end was cut by the kill.
    return [line for line in output.read_text().splitlines(keepends=True) if line.endswith("\n")]


def read_all(log: EmbeddedLog) -> list[str]:
    return [
        record.value.decode()
        for partition in log.bounds(TOPIC)
        for record in log.read(TOPIC, partition, offset=0, max_records=10_000_000)
    ]


def test_acknowledged_records_survive_the_kill_of_each_appender(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=2))
    log.create_topics((TOPIC,))
    generator = random.Random(7)
    outputs = [tmp_path / f"{number}.txt" for number in range(5)]
    alive: list[subprocess.Popen[bytes]] = []
    for number, output in enumerate(outputs):
        alive.append(start("log", tmp_path / "log", f"p{number}", output))
        if number >= 1:
            # Two append at once; the older dies in the middle of something.
            wait_for_words(outputs[number - 1 : number + 1], 50)
            time.sleep(generator.random() * 0.05)
            kill(alive.pop(0))
    kill(alive.pop())
    stored = Counter(read_all(log))
    said = [line.strip() for output in outputs for line in acknowledged(output)]
    assert len(said) > 250
    assert [value for value in said if stored[value] != 1] == []
    assert max(stored.values()) == 1
    # A group that was not acknowledged may be there, but no more than was in flight.
    assert len(stored) - len(said) <= 8 * len(outputs)
    places = [log.read(TOPIC, number, offset=0, max_records=10_000_000) for number in (0, 1)]
    for records in places:
        assert [record.offset for record in records] == list(range(len(records)))
        times = [record.appended_at for record in records]
        assert times == sorted(times)
    log.close()


def test_retention_that_is_killed_leaves_a_whole_log_with_all_that_must_stay(
    tmp_path: Path,
) -> None:
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=2))
    log.create_topics((TOPIC,))
    generator = random.Random(8)
    written = tmp_path / "written.txt"
    appender = start("log", tmp_path / "log", "p", written)
    removed = [tmp_path / f"removed{number}.txt" for number in range(5)]
    for number, output in enumerate(removed):
        cleaner = start("retain", tmp_path / "log", "r", output)
        # It appends on while others remove, and while they die in the middle of it.
        wait_for_words([output], 3)
        wait_for_words([written], 200 * (number + 1))
        time.sleep(generator.random() * 0.05)
        kill(cleaner)
    kill(appender)
    firsts = [bounds.first for bounds in log.bounds(TOPIC).values()]
    assert max(firsts) > 0
    kept = []
    for partition, bounds in log.bounds(TOPIC).items():
        records = log.read(TOPIC, partition, offset=0, max_records=10_000_000)
        assert [record.offset for record in records] == list(range(bounds.first, bounds.end))
        assert len(records) >= min(20, bounds.end)
        kept += [int(record.value.decode().removeprefix("p-")) for record in records]
    # Whatever was acknowledged last was never to be removed.
    said = [int(line.strip().removeprefix("p-")) for line in acknowledged(written)]
    assert set(said[-20:]) <= set(kept)
    log.close()


def test_spooled_records_survive_a_kill(tmp_path: Path) -> None:
    output = tmp_path / "said.txt"
    process = start("spool", tmp_path / "spool", "s", output)
    wait_for_words([output], 100)
    kill(process)
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=1))
    log.create_topics((TOPIC,))
    sink, spool = log.sink(), Spool(tmp_path / "spool")
    assert spool.drain(sink) >= len(acknowledged(output))
    sink.close()
    stored = read_all(log)
    assert stored == [f"s-{number}" for number in range(len(stored))]
    assert len(stored) - len(acknowledged(output)) in (0, 1)
    log.close()


def traced(tmp_path: Path, kind: str, count: int) -> list[str]:
    """Run an appender under strace and return `sync` and `said` in the order they happened."""
    if shutil.which("strace") is None:
        missing_server("no strace: install it to count what reaches the disk")
    log = EmbeddedLog(tmp_path / "log", EmbeddedLogSettings(num_partitions=1))
    log.create_topics((TOPIC,))
    trace = tmp_path / "trace.txt"
    done = subprocess.run(
        [*STRACE, str(trace), *COMMAND, kind, str(tmp_path / "log"), "p", str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "ptrace" in done.stderr:
        missing_server("strace may not trace here: allow ptrace")
    assert done.returncode == 0, done.stderr
    events = []
    for line in trace.read_text().splitlines():
        # A call that another thread interrupts ends in a line of its own.
        if re.search(r"f(data)?sync(\(.*\)| resumed>.*\)) += 0", line):
            events.append("sync")
        elif re.search(r'write\(1, "p-', line):
            events.append("said")
    log.close()
    return events


def test_every_acknowledged_group_was_synced_first(tmp_path: Path) -> None:
    events = traced(tmp_path, "log", 400)
    assert events.count("said") == 400
    # Groups of 8: before the first word of each, a sync since the last word of the one before.
    for group in range(50):
        places = [index for index, event in enumerate(events) if event == "said"]
        first = places[group * 8]
        before = places[group * 8 - 1] if group else -1
        assert "sync" in events[before + 1 : first]


def test_many_waiting_records_share_a_sync(tmp_path: Path) -> None:
    events = traced(tmp_path, "burst", 2_000)
    assert events.count("said") == 2_000
    assert events.index("said") >= 1
    assert events.count("sync") < 100
