"""Looks at the table of experiences, as often as it can without taking a core of its own."""

import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tidemill.settings import SharedSettings
from tidemill.storage.database import Database

_POLL_S = 0.001


class WatchError(Exception):
    """Not every interaction became an experience; the figures would mean nothing."""


def watch(
    shared: SharedSettings,
    number: int,
    sender: subprocess.Popen[bytes],
    *,
    give_up_after_s: float,
) -> tuple[dict[str, float], list[float]]:
    """Return when each experience was first seen, and when the table was looked at.

    Raises:
        WatchError: the sender failed, or they are not all there in time.
    """
    seen_at: dict[str, float] = {}
    looks: list[float] = []
    give_up_at = time.monotonic() + give_up_after_s
    with _looking(shared) as look:
        while len(seen_at) < number:
            found = look()
            now = time.monotonic()
            looks.append(now)
            for one in found:
                seen_at.setdefault(one, now)
            if sender.poll() or now > give_up_at:
                raise WatchError(
                    f"{len(seen_at)} of {number} experiences are there; the sender says"
                    f" {sender.poll()}"
                )
            time.sleep(_POLL_S)
    return seen_at, looks


@contextmanager
def _looking(shared: SharedSettings) -> Iterator[Callable[[], list[str]]]:
    """Yield what returns the experiences that are new, and perhaps the last ones again.

    One worker writes them, so that `closed_at` never goes back from one transaction to the next.
    """
    url = Database(shared.database_url).url
    connection: Any
    if url.get_backend_name() == "sqlite":
        connection, mark = sqlite3.connect(str(url.database), isolation_level=None), "?"
    else:
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        connection, mark = psycopg.connect(plain, autocommit=True), "%s"
    # By the index of the learner's queue.
    query = (
        "SELECT experience_id, closed_at FROM experiences WHERE model = 'tide'"  # noqa: S608
        f" AND tenant = 'default' AND state = 'ready' AND closed_at >= {mark}"
    )
    since: list[Any] = ["1970-01-01 00:00:00+00:00"]

    def look() -> list[str]:
        rows = connection.execute(query, (since[0],)).fetchall()
        if rows:
            since[0] = max(moment for _, moment in rows)
        return [one for one, _ in rows]

    try:
        yield look
    finally:
        connection.close()
