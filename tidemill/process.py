"""What every long-running part does alike: listen, stop on SIGTERM, give a sign of life."""

import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidemill.errors import ConfigurationError, StorageError
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import write_heartbeat
from tidemill.storage.tables import HeartbeatRow

FORCE_AFTER_S = 25.0
"""Beyond any drain; before those who run processes send SIGKILL, commonly after 30 s."""

_COLLECT_AFTER = 20_000
"""New container objects before the collector looks at them."""

_log = logging.getLogger(__name__)


def configure_logging(part: str) -> None:
    """Log to stderr, each line with its part."""
    logging.basicConfig(
        level=os.environ.get("TIDEMILL_LOG_LEVEL", "INFO"),
        format=f"%(asctime)s {part} %(levelname)s %(name)s: %(message)s",
    )
    # At INFO these tell of every connection and every look at the schema.
    for noisy in ("alembic", "kafka"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def spare_collector() -> None:
    """Let the garbage collector look at fewer objects, less often; call it once all is set up.

    A batch is many small objects that die together without a cycle, and looking at them, and at
    all modules with them, every 700 objects is a tenth of the work of taking feedback.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 20, 50)


def stop_on_signal(*, force_after_s: float | None = None) -> threading.Event:
    """Return an event that SIGTERM and SIGINT set.

    Args:
        force_after_s: the process ends itself, with exit code 1, when it is still there so long
            after the first signal: a database that hangs must not keep it for ever. Only for parts
            that lose nothing by it. None = never.
    """
    stop = threading.Event()

    def begin(*_: object) -> None:
        if force_after_s is not None and not stop.is_set():
            last_resort = threading.Timer(force_after_s, _force_end, (force_after_s,))
            last_resort.daemon = True
            last_resort.start()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, begin)
    return stop


def _force_end(after_s: float) -> None:
    _log.error("not done %g s after the signal to stop; ending at once", after_s)
    logging.shutdown()
    os._exit(1)


def listen(host: str, port: int, *, setting: str) -> socket.socket:
    """Return a listening socket; `setting` names where the port comes from.

    Raises:
        ConfigurationError: the address is taken, or none of this machine's.
    """
    try:
        listener = socket.create_server((host, port), backlog=2048)
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another {setting}"
        ) from error
    # Inherited by every connection: an answer is two writes, and without this the second one
    # waits for the peer's delayed acknowledgement, 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@dataclass(slots=True)
class Pulse:
    """Readiness and counters of one part, written to the database once a second.

    Use as a context manager around the part's loop; change `ready`, `detail` and `counters` freely.
    """

    database: Database
    part: str
    ready: bool = False
    detail: str = "starting"
    counters: dict[str, Any] = field(default_factory=dict)
    interval_s: float = 1.0
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _started_at: datetime | None = field(default=None, init=False)

    def __enter__(self) -> "Pulse":
        """Begin."""
        self._started_at = self.now()
        self._thread = threading.Thread(target=self._run, name=f"pulse-{self.part}", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write a last, not-ready sign and end."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.ready = False
        self.detail = "stopped"
        self.beat()

    def beat(self) -> None:
        """Write one sign of life now; a refusal is logged, never raised."""
        try:
            with self.database.transaction() as session:
                write_heartbeat(session, self._sign())
        except StorageError as error:
            _log.warning("no heartbeat: %s", error)

    def _sign(self) -> HeartbeatRow:
        moment = self.now()
        return HeartbeatRow(
            part=self.part,
            pid=os.getpid(),
            ready=self.ready,
            detail=self.detail,
            counters=dict(self.counters),
            started_at=self._started_at or moment,
            at=moment,
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            self.beat()
            self._stop.wait(self.interval_s)
