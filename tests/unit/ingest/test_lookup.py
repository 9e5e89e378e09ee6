import asyncio
import threading
from collections.abc import Collection

from ingest.lookup import Lookup
from tidemill.errors import StorageError


class Source:
    """Knows every even number; counts its queries."""

    def __init__(self) -> None:
        self.queries: list[set[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.fails = False

    def __call__(self, keys: Collection[int]) -> dict[int, str]:
        self.queries.append(set(keys))
        self.gate.wait(5)
        if self.fails:
            raise StorageError("down")
        return {key: f"v{key}" for key in keys if key % 2 == 0}


def test_what_is_remembered_costs_no_query() -> None:
    source = Source()
    lookup: Lookup[int, str] = Lookup(source, size=2)
    for key in (1, 3, 5):
        lookup.remember({key: "mine"})
    found = asyncio.run(lookup.find([3, 5]))
    assert (found, source.queries) == ({3: "mine", 5: "mine"}, [])
    assert lookup.recall(1) is None  # only the two newest are kept


def test_who_waits_shares_the_next_query() -> None:
    source = Source()
    lookup: Lookup[int, str] = Lookup(source, size=0)

    async def many() -> list[dict[int, str]]:
        source.gate.clear()
        first = asyncio.create_task(lookup.find([0]))
        await asyncio.sleep(0.05)
        rest = [asyncio.create_task(lookup.find([key])) for key in (1, 2, 2, 3)]
        await asyncio.sleep(0.05)
        source.gate.set()
        return [await task for task in (first, *rest)]

    assert asyncio.run(many()) == [{0: "v0"}, {}, {2: "v2"}, {2: "v2"}, {}]
    assert source.queries == [{0}, {1, 2, 3}]


def test_a_database_that_is_down_knows_nothing_and_stops_nobody() -> None:
    source = Source()
    source.fails = True
    lookup: Lookup[int, str] = Lookup(source, size=0)
    assert asyncio.run(lookup.find([2])) == {}
    source.fails = False
    assert asyncio.run(lookup.find([2])) == {2: "v2"}


def test_a_caller_that_goes_away_takes_no_answer_along() -> None:
    source = Source()
    lookup: Lookup[int, str] = Lookup(source, size=0)

    async def two() -> dict[int, str]:
        source.gate.clear()
        gone = asyncio.create_task(lookup.find([2]))
        stays = asyncio.create_task(lookup.find([2]))
        await asyncio.sleep(0.05)
        gone.cancel()
        source.gate.set()
        return await stays

    assert asyncio.run(two()) == {2: "v2"}


def test_a_database_that_hangs_is_waited_for_once_and_not_for_long() -> None:
    source = Source()
    lookup: Lookup[int, str] = Lookup(source, size=0, timeout_s=0.05)
    source.gate.clear()

    async def ask() -> list[dict[int, str]]:
        found = [await lookup.find([2]), await lookup.find([4])]
        source.gate.set()
        while lookup._asking is not None and not lookup._asking.done():
            await asyncio.sleep(0.001)
        return [*found, await lookup.find([6])]

    assert asyncio.run(ask()) == [{}, {}, {6: "v6"}]
    # The second question found the first one still open, and was not asked.
    assert source.queries == [{2}, {6}]


def test_a_few_ids_may_be_asked_for_at_once() -> None:
    source = Source()
    lookup: Lookup[int, str] = Lookup(source, size=0, num_at_once=2)

    async def many() -> list[dict[int, str]]:
        return list(await asyncio.gather(*(lookup.find([key]) for key in (1, 2))))

    assert asyncio.run(many()) == [{}, {2: "v2"}]
    assert source.queries == [{1, 2}]
    source.fails = True
    assert asyncio.run(lookup.find([2])) == {}
