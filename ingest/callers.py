"""Who calls: keys, their scopes, and a short memory of them."""

import logging
import time
from collections import Counter
from collections.abc import Callable

from ingest.api_errors import ProblemError
from tidemill.errors import StorageError
from tidemill.storage.key_memory import FindKey, KeyMemory
from tidemill.storage.keys import ApiKey, Scope

_log = logging.getLogger(__name__)

_STALE_S = 600.0
"""A key that was good is still good this long when the database cannot be asked."""


class Callers:
    """Turns an Authorization header into a caller; used on the event loop."""

    def __init__(
        self,
        find: FindKey,
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
        self._open = None if open_to is None else ApiKey("", open_to, frozenset({Scope.ADMIN}))
        self._memory = KeyMemory(
            find, fresh_s=fresh_s, stale_s=_STALE_S, timeout_s=timeout_s, clock=clock
        )
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
        try:
            key = await self._memory.look_up(text.strip())
        except StorageError as error:
            _log.warning("cannot look up a key: %s", error)
            raise ProblemError(503, "keys cannot be checked now; try again") from error
        if key is None:
            self.num_rejected["unknown_key"] += 1
            raise ProblemError(401, "this key is unknown or revoked")
        if not key.allows(scope):
            self.num_rejected["missing_scope"] += 1
            raise ProblemError(403, f"this key lacks the scope {scope.value}")
        return key
