"""Which ids are known already: a bounded memory first, then one query for all who wait.

It only answers early. Whether a record is a repeat is decided by the worker's unique key, so a
database that cannot be asked is no reason to refuse feedback.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill.errors import StorageError
from tidemill.storage.patience import heard

_log = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Question(Generic[K, V]):
    keys: Sequence[K]
    answer: "asyncio.Future[Mapping[K, V]]"
    asked_at_s: float


class Lookup(Generic[K, V]):
    """Answers on the event loop; longer queries run in a thread, one at a time."""

    def __init__(
        self,
        fetch: Callable[[Collection[K]], Mapping[K, V]],
        *,
        size: int,
        num_at_once: int = 0,
        timeout_s: float = 0.5,
    ) -> None:
        """Remember ids.

        Args:
            fetch: asks the database.
            size: how many of the newest known ids need no question.
            num_at_once: so few ids are asked for on the event loop itself, because that takes less
                time than a thread's answer (SQLite); 0 = never.
            timeout_s: what the database did not say by then is not known; the wait for one's turn
                is part of it.
        """
        self._fetch = fetch
        self._size = size
        self._num_at_once = num_at_once
        self._timeout_s = timeout_s
        self._asking: asyncio.Future[Mapping[K, V]] | None = None
        self._recent: OrderedDict[K, V] = OrderedDict()
        self._waiting: list[_Question[K, V]] = []
        self._runner: asyncio.Task[None] | None = None

    async def find(self, keys: Collection[K]) -> dict[K, V]:
        """Return what is known of some ids."""
        known = {key: self._recent[key] for key in keys if key in self._recent}
        missing = [key for key in keys if key not in known]
        if not missing:
            return known
        loop = asyncio.get_running_loop()
        asked = _Question(missing, loop.create_future(), loop.time())
        self._waiting.append(asked)
        if self._runner is None:
            self._runner = loop.create_task(self._run())
        found = await asked.answer
        for key in missing:
            if key in found:
                known[key] = found[key]
        return known

    def recall(self, key: K) -> V | None:
        """Return what the memory alone knows of an id."""
        return self._recent.get(key)

    def remember(self, values: Mapping[K, V]) -> None:
        """Keep ids that were just acknowledged, before any worker has seen them."""
        recent = self._recent
        for key, value in values.items():
            recent[key] = value
            recent.move_to_end(key)
        while len(recent) > self._size:
            recent.popitem(last=False)

    async def _run(self) -> None:
        # The callers of one turn of the loop, or of one query's time, share the next query.
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                await self._answer(asked)
        finally:
            self._runner = None

    async def _answer(self, asked: Sequence["_Question[K, V]"]) -> None:
        found: Mapping[K, V] = {}
        keys = {key for question in asked for key in question.keys}
        try:
            if len(keys) <= self._num_at_once:
                found = self._ask(keys)
            else:
                found = await self._ask_in_thread(keys, asked[0].asked_at_s)
        finally:
            for question in asked:
                # Done already: its caller went away.
                if not question.answer.done():
                    question.answer.set_result(found)

    async def _ask_in_thread(self, keys: Collection[K], since_s: float) -> Mapping[K, V]:
        if self._asking is not None and not self._asking.done():
            # An earlier question was given up and still has no answer: nobody waits for this one.
            return {}
        loop = asyncio.get_running_loop()
        self._asking = loop.run_in_executor(None, self._ask, keys)
        try:
            return await heard(self._asking, max(0.0, since_s + self._timeout_s - loop.time()))
        except StorageError as error:
            _log.warning("cannot look up known ids: %s", error)
            return {}

    def _ask(self, keys: Collection[K]) -> Mapping[K, V]:
        try:
            return self._fetch(keys)
        except StorageError as error:
            _log.warning("cannot look up known ids: %s", error)
            return {}
