"""Keys of callers, checked against the database at most every few seconds each."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from serving.errors import ApiError
from tidemill.errors import StorageError
from tidemill.storage.keys import MAX_KEY_LENGTH, ApiKey, Scope
from tidemill.storage.patience import within

_log = logging.getLogger(__name__)

_MAX_ENTRIES = 10_000
_TIMEOUT_S = 0.5
"""Longest wait for the database."""

FindKey = Callable[[str], ApiKey | None]
"""Looks a key up; blocks; raises StorageError."""


@dataclass(frozen=True, slots=True)
class _Entry:
    key: ApiKey | None
    checked_at: float
    """When the database said so."""
    asked_at: float
    """When it was asked last."""


class KeyRing:
    """Tells whether a caller may ask for completions of this installation's tenant.

    When the database is away, a key that was good before stays good for `stale_s`.
    """

    def __init__(
        self,
        find_key: FindKey,
        *,
        tenant: str,
        fresh_s: float,
        stale_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._find_key = find_key
        self._tenant = tenant
        self._fresh_s = fresh_s
        self._stale_s = stale_s
        self._clock = clock
        self._entries: dict[str, _Entry] = {}

    async def require(self, headers: Mapping[str, str]) -> None:
        """Let a request with a good key pass.

        Raises:
            ApiError: 401 without a good key, 403 when it is not for this, 503 when nobody knows.
        """
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise ApiError(
                401,
                "no key: send `authorization: Bearer tdm_...`; "
                "make one with `tidemill keys create --scope completions`",
                code="missing_api_key",
            )
        text = text.strip()
        key = await self._look_up(text) if len(text) <= MAX_KEY_LENGTH else None
        if key is None:
            raise ApiError(401, "this key is unknown or revoked", code="invalid_api_key")
        if not key.allows(Scope.COMPLETIONS):
            raise ApiError(403, "this key lacks the scope `completions`", code="insufficient_scope")
        if key.tenant != self._tenant:
            raise ApiError(403, "this key belongs to another tenant", code="wrong_tenant")

    async def _look_up(self, text: str) -> ApiKey | None:
        entry = self._entries.get(text)
        now = self._clock()
        is_stale = entry is None or now - entry.checked_at >= max(self._fresh_s, self._stale_s)
        if entry is not None and not is_stale and now - entry.asked_at < self._fresh_s:
            return entry.key
        try:
            key = await within(_TIMEOUT_S, lambda: self._find_key(text))
        except StorageError as error:
            if entry is not None and not is_stale:
                _log.warning("keys cannot be checked, a known one passes: %s", error)
                # The next try is not due at once: a database that hangs costs each its time.
                self._entries[text] = replace(entry, asked_at=now)
                return entry.key
            raise ApiError(503, "keys cannot be checked now; try again", code="no_keys") from error
        if len(self._entries) >= _MAX_ENTRIES:
            self._entries.clear()
        self._entries[text] = _Entry(key, now, now)
        return key
