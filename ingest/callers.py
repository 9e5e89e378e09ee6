"""Who calls: keys, their scopes, and a short memory of them."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from ingest.api_errors import ProblemError
from tidemill.errors import StorageError
from tidemill.storage.keys import MAX_KEY_LENGTH, ApiKey, Scope
from tidemill.storage.patience import within

_log = logging.getLogger(__name__)

_MAX_REMEMBERED = 10_000
_STALE_S = 600.0
"""A key that was good is still good this long when the database cannot be asked."""


@dataclass(frozen=True, slots=True)
class _Seen:
    key: ApiKey | None
    at: float
    """When the database said so."""
    asked_at: float
    """When it was asked last."""


class Callers:
    """Turns an Authorization header into a caller; used on the event loop."""

    def __init__(
        self,
        find: Callable[[str], ApiKey | None],
        *,
        open_to: str | None = None,
        fresh_s: float = 5.0,
        timeout_s: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Remember keys.

        Args:
            find: asks the database for a key's text.
            open_to: the tenant of everybody; None = a key is needed.
            fresh_s: how long an answer is not asked for again.
            timeout_s: longest wait for the database.
            clock: seconds that never go back.
        """
        self._find = find
        self._open = None if open_to is None else ApiKey("", open_to, frozenset({Scope.ADMIN}))
        self._fresh_s = fresh_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        self.num_rejected: Counter[str] = Counter()
        """By reason; read from another thread."""

    async def require(self, authorization: str | None, scope: Scope) -> ApiKey:
        """Return the caller.

        Raises:
            ProblemError: 401 without a valid key, 403 without the scope, 503 when nobody can tell.
        """
        if self._open is not None:
            return self._open
        kind, _, text = (authorization or "").partition(" ")
        if kind.lower() != "bearer" or not text:
            self.num_rejected["no_key"] += 1
            raise ProblemError(401, "send `Authorization: Bearer tdm_...`; `tidemill keys create`")
        text = text.strip()
        key = await self._look_up(text) if len(text) <= MAX_KEY_LENGTH else None
        if key is None:
            self.num_rejected["unknown_key"] += 1
            raise ProblemError(401, "this key is unknown or revoked")
        if not key.allows(scope):
            self.num_rejected["missing_scope"] += 1
            raise ProblemError(403, f"this key lacks the scope {scope.value}")
        return key

    async def _look_up(self, text: str) -> ApiKey | None:
        seen = self._seen.get(text)
        moment = self._clock()
        is_stale = seen is None or moment - seen.at >= _STALE_S
        if seen is not None and not is_stale and moment - seen.asked_at < self._fresh_s:
            return seen.key
        try:
            key = await within(self._timeout_s, lambda: self._find(text))
        except StorageError as error:
            if seen is not None and seen.key is not None and not is_stale:
                # The next try is not due at once: a database that hangs costs each its time.
                self._seen[text] = replace(seen, asked_at=moment)
                return seen.key
            _log.warning("cannot look up a key: %s", error)
            raise ProblemError(503, "keys cannot be checked now; try again") from error
        if len(self._seen) >= _MAX_REMEMBERED:
            self._seen.clear()
        self._seen[text] = _Seen(key, moment, moment)
        return key
