"""Ids that a request of this process is taking just now: whoever comes with one of them waits.

Without it two bodies under one id, sent at the same moment, would both be acknowledged. Another
process knows nothing of it; there the worker decides.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Claim(Generic[K, V]):
    """The ids of one request, and a future for those who wait, made when the first one does."""

    __slots__ = ("keys", "settled")

    def __init__(self, keys: Collection[K]) -> None:
        """Nobody waits yet."""
        self.keys = keys
        self.settled: asyncio.Future[Mapping[K, V]] | None = None


class UnderWay(Generic[K, V]):
    """Used on one event loop; holds no more ids than there are records under way."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._claims: dict[K, Claim[K, V]] = {}

    def held(self, keys: Collection[K]) -> dict[K, "asyncio.Future[Mapping[K, V]]"]:
        """Return, for those ids that other requests hold, what these will be told when they end."""
        claims = self._claims
        if claims.keys().isdisjoint(keys):
            return {}
        return {key: _future(claims[key]) for key in keys if key in claims}

    def begin(self, keys: Collection[K]) -> Claim[K, V]:
        """Hold ids that nobody holds, until `end`."""
        claim: Claim[K, V] = Claim(keys)
        self._claims.update(dict.fromkeys(keys, claim))
        return claim

    def end(self, claim: Claim[K, V], stands: Mapping[K, V]) -> None:
        """Let go, and tell those who wait what each durable id stands for."""
        for key in claim.keys:
            del self._claims[key]
        if claim.settled is not None:
            claim.settled.set_result(stands)


def _future(claim: Claim[K, V]) -> "asyncio.Future[Mapping[K, V]]":
    if claim.settled is None:
        claim.settled = asyncio.get_running_loop().create_future()
    return claim.settled
