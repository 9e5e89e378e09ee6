"""How each part is: its last sign of life, and what its HTTP face answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cache
from typing import Any

import httpx

from tidemill.errors import StorageError
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import fetch_heartbeats
from tidemill.storage.tables import HeartbeatRow

SILENT_AFTER_S = 15.0
_HTTP_TIMEOUT_S = 1.0


class PartState(StrEnum):
    """What a part can be."""

    ABSENT = "absent"
    """No process of it is known."""
    STARTING = "starting"
    NOT_READY = "not ready"
    READY = "ready"
    SILENT = "silent"
    """No sign of life for too long."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class PartHealth:
    """One line of the table."""

    name: str
    state: PartState
    detail: str
    pid: int | None = None
    counters: dict[str, Any] = field(default_factory=dict)


def judge_sign(sign: HeartbeatRow, *, now: datetime) -> PartHealth:
    """Return what one sign of life says by itself."""
    age_s = (now - sign.at).total_seconds()
    if sign.detail == "stopped":
        state, detail = PartState.STOPPED, "stopped"
    elif age_s > SILENT_AFTER_S:
        state, detail = PartState.SILENT, f"no sign of life for {age_s:.0f} s"
    else:
        state = PartState.READY if sign.ready else PartState.NOT_READY
        detail = sign.detail
    return PartHealth(sign.part, state, detail, sign.pid, dict(sign.counters))


def judge_child(sign: HeartbeatRow | None, *, name: str, pid: int, now: datetime) -> PartHealth:
    """Return how a living child is; a sign that an earlier life left says nothing about it."""
    if sign is None or sign.pid != pid:
        return PartHealth(name, PartState.STARTING, "no sign of life yet", pid)
    return judge_sign(sign, now=now)


def ask_http(url: str) -> str | None:
    """Return why the HTTP face at `url` is not ready, or None when it is."""
    for path in ("/health", "/ready"):
        try:
            answer = _client().get(f"{url}{path}")
        except httpx.HTTPError as error:
            return f"{path} does not answer ({type(error).__name__})"
        if answer.status_code != httpx.codes.OK:
            return f"{path} answers {answer.status_code}"
    return None


@cache
def _client() -> httpx.Client:
    # One for good: each new client reads all certificate authorities, 20 ms of processor time.
    # No connection is kept, since a part that was restarted would be met on a dead one.
    return httpx.Client(timeout=_HTTP_TIMEOUT_S, limits=httpx.Limits(max_keepalive_connections=0))


def with_http(health: PartHealth, url: str | None, ask: Callable[[str], str | None]) -> PartHealth:
    """Believe a part that says it is ready only when its HTTP face says so too."""
    if url is None or health.state is not PartState.READY:
        return health
    complaint = ask(url)
    if complaint is None:
        return health
    return PartHealth(health.name, PartState.NOT_READY, complaint, health.pid, health.counters)


def read_signs(database: Database) -> Mapping[str, HeartbeatRow]:
    """Return the last sign of life of each part; none while the database does not answer."""
    try:
        with database.reading() as session:
            return {sign.part: sign for sign in fetch_heartbeats(session)}
    except StorageError:
        return {}


def changed(before: Sequence[PartHealth], after: Sequence[PartHealth]) -> list[PartHealth]:
    """Return the lines of `after` whose state is new; details and counters change all the time."""
    known = {health.name: health.state for health in before}
    return [health for health in after if known.get(health.name) is not health.state]
