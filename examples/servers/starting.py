"""What all servers have in common: ports, waiting, and the errors when there is none."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.05
_TAIL_CHARS = 2000


class ServerError(Exception):
    """A server cannot be used; the message says which, and what it said last."""


class MissingServerError(ServerError):
    """This machine has no such server; the message says what to install or to set."""


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listens(port: int) -> bool:
    """Tell whether somebody listens on a port of the loopback."""
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_within(timeout_s: float, condition: Callable[[], bool]) -> bool:
    """Wait until a condition holds; False = it did not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def last_words(log: Path) -> str:
    """Return the end of what a server logged."""
    return log.read_text(errors="replace")[-_TAIL_CHARS:] if log.exists() else "nothing"
