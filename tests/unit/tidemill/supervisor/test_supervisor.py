"""With real processes: small scripts stand for the parts."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidemill.supervisor.backoff import Backoff
from tidemill.supervisor.parts import Part
from tidemill.supervisor.supervisor import Supervisor, describe_end

_SLEEP = "import time; time.sleep(600)"
_DRAIN = """
import signal, sys, time
def leave(*_):
    print("drained", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
print("ready", flush=True)
time.sleep(600)
"""
_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(600)
"""


def _part(name: str, script: str) -> Part:
    return Part(name=name, command=(sys.executable, "-c", script))


@dataclass
class _Running:
    logs: Path
    lines: list[str] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def start(self, *parts: Part, drain_timeout_s: float = 10.0) -> None:
        supervisor = Supervisor(
            parts=parts,
            logs=self.logs,
            say=self.lines.append,
            watch=self._watch,
            backoff=Backoff(first_s=0.05, max_s=0.4, stable_s=60.0),
            drain_timeout_s=drain_timeout_s,
            watch_every_s=0.05,
        )
        self.thread = threading.Thread(target=supervisor.run, args=(self.stop,))
        self.thread.start()

    def finish(self) -> None:
        self.stop.set()
        if self.thread is not None:
            self.thread.join()

    def _watch(self, pids: dict[str, int]) -> None:
        self.pids = pids

    def said(self, text: str) -> bool:
        return any(text in line for line in self.lines)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[_Running]:
    running = _Running(tmp_path / "logs")
    yield running
    running.finish()


def _wait(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def test_a_killed_part_is_started_again_and_said_so(running: _Running) -> None:
    running.start(_part("learner", _SLEEP), _part("gate", _SLEEP))
    _wait(lambda: len(running.pids) == 2)
    before = dict(running.pids)
    os.kill(before["learner"], signal.SIGKILL)
    _wait(lambda: running.pids.get("learner", before["learner"]) != before["learner"])
    assert running.said("learner: was ended by SIGKILL")
    assert running.pids["gate"] == before["gate"]


def test_a_part_that_cannot_start_is_tried_ever_more_rarely(running: _Running) -> None:
    running.start(_part("serving", "import sys; print('no such base'); sys.exit(2)"))
    _wait(lambda: sum("ended with exit code 2" in line for line in running.lines) >= 3)
    ends = [line for line in running.lines if "exit code 2" in line]
    assert "starts again in 0.05 s; its last words: no such base" in ends[0]
    assert "starts again in 0.1 s" in ends[1]
    assert "starts again in 0.2 s" in ends[2]


def test_a_part_that_cannot_be_started_leaves_the_others_alone(
    running: _Running, tmp_path: Path
) -> None:
    program = tmp_path / "not-there-yet"
    running.start(Part(name="gate", command=(str(program),)), _part("learner", _SLEEP))
    _wait(lambda: sum("gate: cannot be started" in line for line in running.lines) >= 2)
    tries = [line for line in running.lines if "gate: cannot be started" in line]
    assert "No such file or directory" in tries[0]
    assert tries[0].endswith("tried again in 0.05 s")
    assert tries[1].endswith("tried again in 0.1 s")
    assert _is_alive(running.pids["learner"])
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o700)
    _wait(lambda: "gate" in running.pids)
    assert running.said("gate: started")


def test_a_log_that_cannot_be_written_or_read_leaves_the_others_alone(running: _Running) -> None:
    (running.logs / "gate.log").mkdir(parents=True)
    ends = "import os, sys; os.remove(sys.argv[1]); sys.exit(3)"
    script = (sys.executable, "-c", ends, str(running.logs / "serving.log"))
    running.start(
        _part("gate", _SLEEP), Part(name="serving", command=script), _part("learner", _SLEEP)
    )
    _wait(lambda: running.said("gate: cannot be started") and running.said("serving: ended with"))
    _wait(lambda: "learner" in running.pids)
    assert _is_alive(running.pids["learner"])


def test_stopping_drains_every_part(running: _Running) -> None:
    running.start(_part("serving", _DRAIN), _part("learner", _DRAIN))
    logs = [running.logs / "serving.log", running.logs / "learner.log"]
    _wait(lambda: all(log.exists() and "ready" in log.read_text() for log in logs))
    running.finish()
    assert all(log.read_text().endswith("drained\n") for log in logs)
    assert running.said("stopped 2 parts")


def test_a_part_that_does_not_drain_is_killed(running: _Running) -> None:
    running.start(_part("serving", _STUBBORN), drain_timeout_s=0.3)
    log = running.logs / "serving.log"
    _wait(lambda: log.exists() and "ready" in log.read_text() and "serving" in running.pids)
    pid = running.pids["serving"]
    running.finish()
    assert running.said("serving: did not drain in time, killed")
    assert not _is_alive(pid)


def test_logs_outlive_a_part_and_large_ones_are_put_aside(running: _Running) -> None:
    running.logs.mkdir()
    log = running.logs / "gate.log"
    log.write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    running.start(_part("gate", "print('hello')"))
    _wait(lambda: log.exists() and log.read_text().count("hello") >= 2)
    assert (running.logs / "gate.log.1").stat().st_size > 16 * 1024 * 1024


def test_parts_die_with_the_supervisor(tmp_path: Path) -> None:
    script = f"""
import threading
from pathlib import Path
from tidemill.supervisor.parts import Part
from tidemill.supervisor.supervisor import Supervisor
import sys
part = Part(name="serving", command=(sys.executable, "-c", {_SLEEP!r}))
Supervisor(
    parts=[part], logs=Path({str(tmp_path)!r}), say=lambda line: print(line, flush=True),
    watch=lambda pids: None,
).run(threading.Event())
"""
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as up:
        assert up.stdout is not None
        pid = int(up.stdout.readline().rpartition(" ")[2].strip(")\n"))
        assert _is_alive(pid)
        up.kill()
        up.wait()
        _wait(lambda: not _is_alive(pid))


def test_an_end_is_described_in_words() -> None:
    assert describe_end(3) == "ended with exit code 3"
    assert describe_end(-15) == "was ended by SIGTERM"
