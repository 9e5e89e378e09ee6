"""One life of one part: a process that dies with its parent and logs to a file."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tidemill.supervisor.parts import Part

_PR_SET_PDEATHSIG = 1
_MAX_LOG_BYTES = 16 * 1024 * 1024
_TAIL_BYTES = 4096


class Child:
    """A started part."""

    def __init__(self, part: Part, logs: Path) -> None:
        """Start it; its output is appended to `<logs>/<name>.log`."""
        self.part = part
        self._log = logs / f"{part.name}.log"
        _rotate(self._log)
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        self._started_at = time.monotonic()
        with self._log.open("ab") as output:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603  the command is ours
                part.command,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **part.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C reaches a whole group: the order in which parts stop is ours to decide.
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()) if sys.platform == "linux" else None,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def lived_s(self) -> float:
        """Seconds since its start."""
        return time.monotonic() - self._started_at

    def poll(self) -> int | None:
        """Return its exit code, minus the signal's number if one ended it; None while it lives."""
        return self._process.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens when it is gone already."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; False = it still lives."""
        try:
            self._process.wait(max(0.0, timeout_s))
        except subprocess.TimeoutExpired:
            return False
        return True

    def last_words(self) -> str:
        """Return the last line that this life logged; nothing when the log cannot be read."""
        try:
            with self._log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _die_with_parent(parent: int) -> Callable[[], None]:
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        # SIGKILL: a second `up` may start at once, and must not meet a part that still drains.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
