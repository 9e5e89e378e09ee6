"""Makes every served interaction durable before its last byte goes out: in the log, else on disk.

The log commits in groups on a thread of its own; a handler only waits for its own record. When the
log is away, records go to an fsynced spool, which is emptied into the log once it is back. A record
whose fate in the log is unknown may come twice; the worker's unique key drops the second.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from serving.errors import ApiError
from tidemill.contracts.codec import encode
from tidemill.contracts.events import INTERACTIONS, TOPICS, InteractionServed
from tidemill.errors import TidemillError
from tidemill.eventlog.base import EventLog, EventSink

_log = logging.getLogger(__name__)

_AVOID_S = 1.0
"""After a failure the log is left alone this long, so that not every caller waits for it."""


class Spool(Protocol):
    """The part of `tidemill.eventlog.spool.Spool` that is needed here."""

    def append(self, topic: str, key: str, payload: bytes) -> None:
        """Keep a record durably; blocks; raises OSError or EventLogError."""
        ...

    def drain(self, sink: EventSink) -> int:
        """Move what lies here into the log; blocks; return how many."""
        ...


class Emitter:
    """Owns the sink; `emit` is called on the event loop."""

    def __init__(
        self,
        *,
        open_log: Callable[[], EventLog],
        spool: Spool,
        append_timeout_s: float,
        drain_every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_log = open_log
        self._spool = spool
        self._append_timeout_s = append_timeout_s
        self._drain_every_s = drain_every_s
        self._clock = clock
        self._log: EventLog | None = None
        self._sink: EventSink | None = None
        self._avoid_until = -math.inf
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="emitter", daemon=True)
        self.num_logged = 0
        self.num_spooled = 0

    @property
    def is_alive(self) -> bool:
        """Whether the thread that empties the spool runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Open the log, now if it is there, and begin to empty the spool."""
        self._connect()
        self._thread.start()

    def close(self) -> None:
        """Empty the spool once more, wait for what is under way, then let the log go."""
        self._stop.set()
        self._thread.join()
        if self._log is not None and self._sink is not None:
            self._drain(self._sink)
            self._sink.close()
            self._log.close()

    async def emit(self, event: InteractionServed) -> None:
        """Return once the event is durable.

        Raises:
            ApiError: neither the log nor the disk took it, so the answer must not be given.
        """
        value = encode(event)
        if await self._append(event.key, value):
            self.num_logged += 1
            return
        try:
            await asyncio.to_thread(self._spool.append, INTERACTIONS, event.key, value)
        except (OSError, TidemillError) as error:
            _log.error("an interaction is lost with its answer: %s", error)
            raise ApiError(
                503, "the answer cannot be recorded, so it is not given; try again", code="no_log"
            ) from error
        self.num_spooled += 1

    async def _append(self, key: str, value: bytes) -> bool:
        if self._sink is None or self._clock() < self._avoid_until:
            return False
        try:
            future = asyncio.wrap_future(self._sink.append(INTERACTIONS, key, value))
            await asyncio.wait_for(future, self._append_timeout_s)
        except (TidemillError, TimeoutError) as error:
            self._avoid_until = self._clock() + _AVOID_S
            _log.warning("the log is away, interactions go to the spool: %r", error)
            return False
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._drain_every_s):
            self._connect()
            if self._sink is not None and self._clock() >= self._avoid_until:
                self._drain(self._sink)

    def _connect(self) -> None:
        if self._sink is None:
            try:
                if self._log is None:
                    self._log = self._open_log()
                self._log.create_topics(TOPICS)
                self._sink = self._log.sink()
            except (TidemillError, OSError) as error:
                _log.warning("the log cannot be opened, interactions go to the spool: %s", error)

    def _drain(self, sink: EventSink) -> None:
        try:
            num_moved = self._spool.drain(sink)
        except (TidemillError, OSError) as error:
            _log.warning("the spool stays: %s", error)
        else:
            if num_moved:
                _log.info("%d spooled interactions are in the log now", num_moved)
