"""Which ids are known already: a bounded memory first, then one query for all who wait.

It only answers early. Whether a record is a repeat is decided by the worker's unique key, so a
database that cannot be asked is no reason to refuse feedback.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from tidemill.errors import StorageError

_log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class Lookup(Generic[K, V]):
    """Answers on the event loop; longer queries run in a thread, one at a time."""

    def __init__(
        self,
        fetch: Callable[[Collection[K]], Mapping[K, V]],
        *,
        size: int,
        num_at_once: int = 0,
    ) -> None:
        """Remember ids.

        Args:
            fetch: asks the database.
            size: how many of the newest known ids need no question.
            num_at_once: so few ids are asked for on the event loop itself, because that takes less
                time than a thread's answer (SQLite); 0 = never.
        """
        self._fetch = fetch
        self._size = size
        self._num_at_once = num_at_once
        self._recent: OrderedDict[K, V] = OrderedDict()
        self._waiting: dict[K, asyncio.Future[V | None]] = {}
        self._runner: asyncio.Task[None] | None = None

    async def find(self, keys: Collection[K]) -> dict[K, V]:
        """Return what is known of some ids."""
        known = {key: self._recent[key] for key in keys if key in self._recent}
        missing = [key for key in keys if key not in known]
        if not missing:
            return known
        if len(missing) <= self._num_at_once:
            return known | self._ask(missing)
        loop = asyncio.get_running_loop()
        futures = {key: self._waiting.setdefault(key, loop.create_future()) for key in missing}
        if self._runner is None:
            self._runner = loop.create_task(self._run())
        for key, future in futures.items():
            # Shielded: a caller that goes away must not take the others' answer along.
            value = await asyncio.shield(future)
            if value is not None:
                known[key] = value
        return known

    def recall(self, key: K) -> V | None:
        """Return what the memory alone knows of an id."""
        return self._recent.get(key)

    def remember(self, key: K, value: V) -> None:
        """Keep an id that was just acknowledged, before any worker has seen it."""
        self._recent[key] = value
        self._recent.move_to_end(key)
        while len(self._recent) > self._size:
            self._recent.popitem(last=False)

    async def _run(self) -> None:
        # While one query is on its way the next callers gather, and share the next one.
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, {}
                await self._answer(batch)
        finally:
            self._runner = None

    async def _answer(self, batch: dict[K, "asyncio.Future[V | None]"]) -> None:
        found: Mapping[K, V] = {}
        try:
            found = await asyncio.to_thread(self._ask, tuple(batch))
        finally:
            for key, future in batch.items():
                if not future.done():
                    future.set_result(found.get(key))

    def _ask(self, keys: Collection[K]) -> dict[K, V]:
        try:
            return dict(self._fetch(keys))
        except StorageError as error:
            _log.warning("cannot look up known ids: %s", error)
            return {}
