"""Rate limits as the routes use them: of each key, and of each rater."""

import time
from collections.abc import Callable
from math import ceil

from ingest.api_errors import ProblemError
from ingest.feedback_records import FeedbackRecord
from ingest.rate_limits import Buckets
from ingest.settings import RateLimitSettings
from tidemill.storage.keys import ApiKey


class Quotas:
    """Counts what came to this process; used on its event loop."""

    def __init__(
        self, settings: RateLimitSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin with full buckets; `clock` gives seconds that never go back."""
        self._clock = clock
        self._keys: Buckets[tuple[str, str]] = Buckets(
            per_s=settings.key_per_s, burst=settings.key_burst, size=settings.remembered
        )
        self._raters: Buckets[tuple[str, str]] = Buckets(
            per_s=settings.rater_per_s, burst=settings.rater_burst, size=settings.remembered
        )

    def charge_key(self, caller: ApiKey, num_records: int) -> None:
        """Count what a key sends, whether it is good or not.

        Raises:
            ProblemError: 429, the key has sent too much.
        """
        name = (caller.tenant, caller.public_id)
        wait_s = self._keys.take(name, num_records, now_s=self._clock())
        if wait_s > 0:
            raise _too_much("this key", wait_s)

    def charge_rater(self, one: FeedbackRecord) -> None:
        """Count a feedback of a rater; what names no rater is not counted.

        Raises:
            ProblemError: 429, the rater has given too much.
        """
        if one.rater is None:
            return
        wait_s = self._raters.take((one.key[0], one.rater), 1, now_s=self._clock())
        if wait_s > 0:
            ids: dict[str, str | None] = {"feedback_id": one.feedback_id}
            raise _too_much("this rater", wait_s, ids=ids)


def _too_much(who: str, wait_s: float, ids: dict[str, str | None] | None = None) -> ProblemError:
    seconds = max(1, ceil(wait_s))
    detail = f"{who} sends more than its limit; come again in {seconds} s"
    return ProblemError(429, detail, ids=ids, retry_after_s=seconds)
