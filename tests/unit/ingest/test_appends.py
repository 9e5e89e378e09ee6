import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

from ingest.appends import Appends
from tests.memory_log import MemoryLog
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import Appended, NewRecord, Position


class ScriptedSink:
    """Remembers groups; the test settles them."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, list[bytes]]] = []
        self.futures: list[Future[list[Appended]]] = []

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        raise AssertionError(f"one by one costs too much: {topic} {key} {value!r}")

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        self.groups.append((topic, [record.value for record in records]))
        self.futures.append(Future())
        return self.futures[-1]

    def close(self) -> None:
        pass


def records(*values: bytes) -> list[NewRecord]:
    return [NewRecord("k", value) for value in values]


def soon(seconds: float = 30) -> float:
    return asyncio.get_running_loop().time() + seconds


async def settled(sink: ScriptedSink, outcomes: list[Appended]) -> None:
    while not sink.futures:
        await asyncio.sleep(0)
    sink.futures[0].set_result(outcomes)


def test_what_comes_in_one_turn_of_the_loop_is_handed_over_once() -> None:
    sink = ScriptedSink()
    place = MemoryLog().sink().append("a", "k", b"").result()

    async def many() -> list[list[bool]]:
        appends = Appends(sink)
        calls = [
            appends.append("a", records(b"1"), soon()),
            appends.append("a", records(b"2", b"3"), soon()),
        ]
        outcomes: list[Appended] = [place, EventLogUnavailableError("down"), place]
        found = await asyncio.gather(*calls, settled(sink, outcomes))
        return [one for one in found if one is not None]

    assert asyncio.run(many()) == [[True], [False, True]]
    assert sink.groups == [("a", [b"1", b"2", b"3"])]


def test_topics_go_apart_and_turns_too() -> None:
    log = MemoryLog()

    async def many() -> None:
        appends = Appends(log.sink())
        for _ in range(2):
            both = await asyncio.gather(
                appends.append("a", records(b"1"), soon()),
                appends.append("b", records(b"2"), soon()),
            )
            assert both == [[True], [True]]

    asyncio.run(many())
    assert [sum(one.end for one in log.bounds(topic).values()) for topic in "ab"] == [2, 2]


def test_a_group_that_is_not_answered_in_time_is_given_up_for_good() -> None:
    sink = ScriptedSink()
    appends = Appends(sink)

    async def both() -> list[list[bool]]:
        # They go together, so they are given up together: at the end of the first.
        calls = [appends.append("a", records(b"1"), soon(far)) for far in (30, 0.01)]
        return list(await asyncio.gather(*calls))

    assert asyncio.run(both()) == [[False], [False]]
    assert sink.futures[0].cancelled()


def test_a_caller_that_goes_away_takes_nobody_along() -> None:
    sink = ScriptedSink()
    place = MemoryLog().sink().append("a", "k", b"").result()

    async def both() -> list[bool]:
        appends = Appends(sink)
        leaving = asyncio.create_task(appends.append("a", records(b"1"), soon()))
        staying = asyncio.create_task(appends.append("a", records(b"2"), soon()))
        await asyncio.sleep(0)
        leaving.cancel()
        await settled(sink, [place, place])
        return await staying

    assert asyncio.run(both()) == [True]


def test_without_a_log_nothing_is_stored() -> None:
    async def once() -> list[bool]:
        return await Appends().append("a", records(b"1"), soon())

    assert asyncio.run(once()) == [False]
