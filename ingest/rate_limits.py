"""How much each key and each rater may send: token buckets of one process. Pure."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets(Generic[K]):
    """A bucket for each name: full at first, and filled again at a steady rate.

    Of the names that are remembered the one that was quiet longest is forgotten first: its bucket
    has had the most time to fill, and a full one is what a forgotten name begins with.
    """

    per_s: float
    """Tokens that come back each second; 0 = no limit."""
    burst: int
    """Tokens in a full bucket."""
    size: int
    """Names that are remembered at most."""
    _buckets: OrderedDict[K, _Bucket] = field(default_factory=OrderedDict, init=False)

    def take(self, name: K, cost: int, *, now_s: float) -> float:
        """Take tokens out of a name's bucket, if it has them.

        What costs more than a full bucket passes when the bucket is full, and leaves a debt.

        Args:
            name: whose bucket.
            cost: tokens.
            now_s: seconds of a clock that never goes back.

        Returns:
            0, or the seconds until it would pass; then nothing was taken.
        """
        if self.per_s <= 0 or cost <= 0:
            return 0.0
        bucket = self._bucket(name, now_s)
        filled = bucket.tokens + (now_s - bucket.at_s) * self.per_s
        bucket.tokens, bucket.at_s = min(float(self.burst), filled), now_s
        missing = min(cost, self.burst) - bucket.tokens
        if missing > 0:
            return missing / self.per_s
        bucket.tokens -= cost
        return 0.0

    def _bucket(self, name: K, now_s: float) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is not None:
            self._buckets.move_to_end(name)
            return bucket
        bucket = self._buckets[name] = _Bucket(self.burst, now_s)
        if len(self._buckets) > self.size:
            self._buckets.popitem(last=False)
        return bucket
