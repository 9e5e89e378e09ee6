"""Keys of callers, checked against the database at most every few seconds each."""

import time
from collections.abc import Callable, Mapping

from serving.errors import ApiError
from tidemill.errors import StorageError
from tidemill.storage.key_memory import FindKey, KeyMemory
from tidemill.storage.keys import Scope


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
        self._tenant = tenant
        self._memory = KeyMemory(
            find_key, fresh_s=fresh_s, stale_s=stale_s, keeps_unknown=True, clock=clock
        )

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
        try:
            key = await self._memory.look_up(text.strip())
        except StorageError as error:
            raise ApiError(503, "keys cannot be checked now; try again", code="no_keys") from error
        if key is None:
            raise ApiError(401, "this key is unknown or revoked", code="invalid_api_key")
        if not key.allows(Scope.COMPLETIONS):
            raise ApiError(403, "this key lacks the scope `completions`", code="insufficient_scope")
        if key.tenant != self._tenant:
            raise ApiError(403, "this key belongs to another tenant", code="wrong_tenant")
