"""A short memory of API keys: a request seldom waits for the database, and never for long."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemill.errors import StorageError
from tidemill.storage.keys import MAX_KEY_LENGTH, ApiKey
from tidemill.storage.patience import within

_log = logging.getLogger(__name__)

_MAX_REMEMBERED = 10_000

FindKey = Callable[[str], ApiKey | None]
"""Looks a key up; blocks; raises StorageError."""


@dataclass(frozen=True, slots=True)
class _Seen:
    key: ApiKey | None
    at: float
    """When the database said so."""
    asked_at: float
    """When it was asked last."""


class KeyMemory:
    """What the database said of keys; used on one event loop."""

    def __init__(  # noqa: PLR0913  each is a time or a source of it
        self,
        find: FindKey,
        *,
        fresh_s: float,
        stale_s: float,
        timeout_s: float = 0.5,
        keeps_unknown: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember nothing yet.

        Args:
            find: asks the database for a key's text.
            fresh_s: how long an answer is not asked for again.
            stale_s: how long it stands when the database cannot be asked.
            timeout_s: longest wait for the database.
            keeps_unknown: whether that goes for a text that is no key, too.
            clock: seconds that never go back.
        """
        self._find = find
        self._fresh_s = fresh_s
        self._stale_s = max(fresh_s, stale_s)
        self._timeout_s = timeout_s
        self._keeps_unknown = keeps_unknown
        self._clock = clock
        self._seen: dict[str, _Seen] = {}

    def __len__(self) -> int:
        """Return how many texts are remembered."""
        return len(self._seen)

    async def look_up(self, text: str) -> ApiKey | None:
        """Return the key that a text is; None = it is none, or revoked.

        Raises:
            StorageError: nobody can tell.
        """
        if len(text) > MAX_KEY_LENGTH:
            return None
        seen, now = self._seen.get(text), self._clock()
        if seen is not None and now - seen.at >= self._stale_s:
            seen = None
        if seen is not None and now - seen.asked_at < self._fresh_s:
            return seen.key
        try:
            key = await within(self._timeout_s, lambda: self._find(text))
        except StorageError as error:
            if seen is None or (seen.key is None and not self._keeps_unknown):
                raise
            _log.warning("keys cannot be checked, a known one passes: %s", error)
            # The next try is not due at once: a database that hangs costs each its time.
            self._seen[text] = replace(seen, asked_at=now)
            return seen.key
        if len(self._seen) >= _MAX_REMEMBERED:
            self._seen.clear()
        self._seen[text] = _Seen(key, now, now)
        return key
