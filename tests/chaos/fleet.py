"""The processes of a run: killed, and started again when they end, as an orchestrator does."""

import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from ingest.settings import IngestSettings
from tests.ingest_processes import start_part
from tests.servers import free_port
from tidemill.settings import SharedSettings

_BIRTH_S = 30.0
"""A process may end by itself so long after its start, where a server was away meanwhile."""
_START_AGAIN_S = 0.3
_STOP_S = 60.0


@dataclass(slots=True)
class Slot:
    """One process and its successors."""

    name: str
    part: str
    settings: IngestSettings
    ahead_s: float
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    resumes_at: float | None = None
    """When a paused one goes on (monotonic)."""


@dataclass(kw_only=True)
class Fleet:
    """All processes; used by one thread."""

    shared: SharedSettings
    slots: dict[str, Slot]
    logs: Path
    outage_at: float = float("-inf")
    """When a server was last away (monotonic)."""
    endings: list[str] = field(default_factory=list)
    """Processes that ended although nobody told them to."""

    @property
    def urls(self) -> list[str]:
        """Where the API processes listen."""
        return [
            f"http://127.0.0.1:{slot.settings.port}"
            for slot in self.slots.values()
            if slot.part == "api_process"
        ]

    def kill(self, name: str) -> None:
        """kill -9; the next `tend` starts it again."""
        process = self.slots[name].process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.slots[name].process = None

    def pause(self, name: str, seconds: float) -> None:
        """Stop a process for so long that others take its work; it goes on as if nothing was."""
        slot = self.slots[name]
        if slot.process is not None:
            slot.process.send_signal(signal.SIGSTOP)
            slot.resumes_at = time.monotonic() + seconds

    @property
    def workers(self) -> list[str]:
        """Their names."""
        return [slot.name for slot in self.slots.values() if slot.part == "worker"]

    def tend(self) -> None:
        """Start what does not run, and let go on what was paused long enough."""
        for slot in self.slots.values():
            if slot.resumes_at is not None and time.monotonic() > slot.resumes_at:
                slot.resumes_at = None
                if slot.process is not None:
                    slot.process.send_signal(signal.SIGCONT)
            if slot.process is not None and slot.process.poll() is not None:
                self._bury(slot)
            if slot.process is None and time.monotonic() - slot.started_at > _START_AGAIN_S:
                slot.started_at = time.monotonic()
                slot.process = start_part(
                    slot.part,
                    self.shared,
                    slot.settings,
                    ahead_s=slot.ahead_s,
                    output=self.logs / f"{slot.name}.log",
                )

    def wait_ready(self) -> None:
        """Wait until every API process answers that it is ready."""
        deadline = time.monotonic() + 2 * _STOP_S
        for url in self.urls:
            while not _is_ready(url):
                if self.endings or time.monotonic() > deadline:
                    raise RuntimeError(f"{url} is not ready: {self.endings}; see {self.logs}")
                self.tend()
                time.sleep(0.05)

    def stop(self) -> dict[str, int]:
        """SIGTERM to all; return the exit codes of those that were up by then."""
        living = {name: slot.process for name, slot in self.slots.items() if slot.process}
        is_young = {
            name: time.monotonic() - self.slots[name].started_at < _BIRTH_S for name in living
        }
        for process in living.values():
            process.terminate()
            process.send_signal(signal.SIGCONT)
        codes = {name: process.wait(_STOP_S) for name, process in living.items()}
        # One that still begins has no drain to do: the signal just ends it.
        return {
            name: code
            for name, code in codes.items()
            if not (is_young[name] and code == -signal.SIGTERM)
        }

    def _bury(self, slot: Slot) -> None:
        assert slot.process is not None
        is_excused = (
            self.outage_at > slot.started_at - _BIRTH_S
            and time.monotonic() - slot.started_at < _BIRTH_S
        )
        if not is_excused:
            self.endings.append(f"{slot.name} ended with {slot.process.returncode}")
        slot.process = None


@contextmanager
def running_fleet(
    shared: SharedSettings,
    settings: IngestSettings,
    logs: Path,
    *,
    num_workers: int,
    ahead_s: Sequence[float],
) -> Iterator[Fleet]:
    """Start the workers, and an API process for each `ahead_s`; all are killed at the end.

    Args:
        shared: what every process agrees on.
        settings: of every process; each API gets a port of its own.
        logs: a new folder for what they say.
        num_workers: how many ingest workers.
        ahead_s: how far the clock of each API process goes ahead of the machine's.
    """
    logs.mkdir()
    slots = [Slot(f"worker-{number + 1}", "worker", settings, 0.0) for number in range(num_workers)]
    for number, ahead in enumerate(ahead_s):
        own = settings.model_copy(update={"port": free_port()})
        slots.append(Slot(f"api-{number + 1}", "api_process", own, ahead))
    fleet = Fleet(shared=shared, slots={slot.name: slot for slot in slots}, logs=logs)
    try:
        fleet.tend()
        fleet.wait_ready()
        yield fleet
    finally:
        for name in fleet.slots:
            fleet.kill(name)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/ready", timeout=5).status_code == 200
    except httpx.TransportError:
        return False
