"""Keeps the parts alive until it is told to stop, then drains them."""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidemill.supervisor.backoff import Backoff, next_restart
from tidemill.supervisor.child import Child
from tidemill.supervisor.parts import Part

_TICK_S = 0.1


@dataclass(slots=True)
class _Slot:
    part: Part
    child: Child | None = None
    num_short_lives: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class Supervisor:
    """One loop, one thread; everything it does it says through `say`."""

    parts: Sequence[Part]
    logs: Path
    say: Callable[[str], None]
    watch: Callable[[dict[str, int]], None]
    """Called about once a second with the process id of each living part."""
    backoff: Backoff = field(default_factory=Backoff)
    drain_timeout_s: float = 45.0
    watch_every_s: float = 1.0

    def run(self, stop: threading.Event) -> None:
        """Start everything, restart what dies, and drain when `stop` is set."""
        self.logs.mkdir(parents=True, exist_ok=True)
        slots = [_Slot(part) for part in self.parts]
        next_watch = 0.0
        try:
            while not stop.is_set():
                for slot in slots:
                    self._tend(slot)
                if time.monotonic() >= next_watch:
                    self.watch({s.part.name: s.child.pid for s in slots if s.child is not None})
                    next_watch = time.monotonic() + self.watch_every_s
                stop.wait(_TICK_S)
        finally:
            self._drain([slot.child for slot in slots if slot.child is not None])

    def _tend(self, slot: _Slot) -> None:
        if slot.child is not None:
            code = slot.child.poll()
            if code is not None:
                self._bury(slot, slot.child, code)
        elif time.monotonic() >= slot.not_before:
            self._start(slot)

    def _start(self, slot: _Slot) -> None:
        try:
            slot.child = Child(slot.part, self.logs)
        except OSError as error:
            # No process, no room for its log: the healthy parts must not end for that.
            delay_s = self._back_off(slot, lived_s=0.0)
            self.say(f"{slot.part.name}: cannot be started ({error}), tried again in {delay_s:g} s")
        else:
            self.say(f"{slot.part.name}: started (process {slot.child.pid})")

    def _bury(self, slot: _Slot, child: Child, code: int) -> None:
        lived_s = child.lived_s
        slot.child = None
        delay_s = self._back_off(slot, lived_s=lived_s)
        words = child.last_words()
        self.say(
            f"{slot.part.name}: {describe_end(code)} after {lived_s:.1f} s, "
            f"starts again in {delay_s:g} s" + (f"; its last words: {words}" if words else "")
        )

    def _back_off(self, slot: _Slot, *, lived_s: float) -> float:
        restart = next_restart(self.backoff, num_short_lives=slot.num_short_lives, lived_s=lived_s)
        slot.num_short_lives = restart.num_short_lives
        slot.not_before = time.monotonic() + restart.delay_s
        return restart.delay_s

    def _drain(self, children: Sequence[Child]) -> None:
        for child in children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.drain_timeout_s
        for child in children:
            if not child.wait(deadline - time.monotonic()):
                self.say(f"{child.part.name}: did not drain in time, killed")
                child.signal(signal.SIGKILL)
                child.wait(self.drain_timeout_s)
        if children:
            self.say(f"stopped {len(children)} parts")


def describe_end(code: int) -> str:
    """Say in words how a process ended."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was ended by {signal.Signals(-code).name}"
