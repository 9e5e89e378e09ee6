"""The thread that lets things die while the senders send, and waits for quiet afterwards."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.chaos.cluster import Cluster
from tests.chaos.plan import KILL, PAUSE, Fault, Plan
from tests.chaos.senders import Book
from tidemill.errors import EventLogError, StorageError

_TICK_S = 0.05
_PAUSE_S = 9.0
"""Beyond the time after which a silent worker loses its partitions."""


class StallError(Exception):
    """Nothing went on for longer than the plan's patience."""


@dataclass(kw_only=True)
class Driver:
    """Used by one thread."""

    plan: Plan
    cluster: Cluster
    book: Book
    may_send: threading.Event
    """Cleared while too much waits for the workers."""
    say: Callable[[str], None]
    num_read: int = 0
    """Log records that the workers have taken into rows, when last seen."""
    _moved_at: float = 0.0

    @property
    def share(self) -> float:
        """How much of the feedback is over, in [0, 1]; read from any thread."""
        return len(self.book.over) / self.plan.num_feedback

    def drive(self, faults: Sequence[Fault], threads: Sequence[threading.Thread]) -> None:
        """Start the threads that send, and let everything die in its turn until they have ended.

        Raises:
            StallError: nothing goes on any more.
        """
        for thread in threads:
            thread.start()
        rng = random.Random(self.plan.seed)
        for fault in faults:
            self._wait(lambda at=fault.at: self.share >= at)
            self._strike(fault, rng)
        self._wait(lambda: not any(thread.is_alive() for thread in threads))

    def rest(self) -> None:
        """Wait until every record is read, every interaction closed and nothing pending.

        Raises:
            StallError: nothing goes on any more.
        """
        self._wait(self._is_at_rest)

    def _is_at_rest(self) -> bool:
        try:
            return self.num_read == self.cluster.count_in_log() and self.cluster.is_at_rest()
        except (EventLogError, StorageError):
            # A server that has just come back may not answer yet.
            return False

    def _strike(self, fault: Fault, rng: random.Random) -> None:
        doing = f"{fault.what} {fault.target}"
        self.say(f"{self.share:6.1%} sent, {self.num_read} records read: {doing}")
        if fault.what == KILL:
            self.cluster.fleet.kill(fault.target)
        elif fault.what == PAUSE:
            self.cluster.fleet.pause(fault.target, _PAUSE_S)
        else:
            self.cluster.stack.servers[fault.target](rng)
            self.cluster.fleet.outage_at = time.monotonic()

    def _wait(self, condition: Callable[[], bool]) -> None:
        self._moved_at = time.monotonic()
        while not condition():
            self.cluster.fleet.tend()
            self._look()
            if time.monotonic() - self._moved_at > self.plan.patience_s:
                raise StallError(f"nothing went on for {self.plan.patience_s:g} s")
            time.sleep(_TICK_S)

    def _look(self) -> None:
        before = (self.num_read, len(self.book.over))
        try:
            self.num_read = self.cluster.count_read()
        except StorageError:
            return
        if self.book.num_records - self.num_read > self.plan.max_waiting:
            self.may_send.clear()
        else:
            self.may_send.set()
        if before != (self.num_read, len(self.book.over)):
            self._moved_at = time.monotonic()
