import asyncio
import threading

import pytest

from ingest.readiness import Readiness
from tidemill.errors import StorageError


class Thing:
    """Answers when the test lets it; counts questions."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.fails = False

    def __call__(self) -> None:
        self.num_asked += 1
        assert self.may_answer.wait(30)
        if self.fails:
            raise StorageError("password wrong for user joe")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_there_is_not_missing_and_what_refuses_is() -> None:
    good, bad = Thing(), Thing()
    bad.fails = True
    readiness = Readiness({"database": bad, "event log": good}, timeout_s=30)
    assert asyncio.run(readiness.missing()) == ["the database cannot be reached"]


def test_what_hangs_is_asked_once_by_all_and_waited_for_no_longer_than_so() -> None:
    clock, hanging = Clock(), Thing()
    readiness = Readiness({"log": hanging}, timeout_s=0.05, clock=clock)
    hanging.may_answer.clear()

    async def many() -> list[list[str]]:
        found = list(await asyncio.gather(*(readiness.missing() for _ in range(50))))
        # Its time is over: nobody waits for it again, as long as it has not answered.
        clock.now_s += 3600
        found.append(await readiness.missing())
        return found

    assert asyncio.run(many()) == [["the log does not answer"]] * 51
    assert hanging.num_asked == 1
    hanging.may_answer.set()
    answer = readiness._probes["log"]._answer
    assert answer is not None
    # The late answer is heard, and the next who wants to know asks again.
    assert answer.result(30) is None
    readiness._probes["log"]._timeout_s = 3630
    assert asyncio.run(readiness.missing()) == []
    assert hanging.num_asked == 2


@pytest.mark.parametrize(("later_s", "num_asked"), [(0.9, 1), (1.1, 2)])
def test_an_answer_stands_for_a_moment(later_s: float, num_asked: int) -> None:
    clock, thing = Clock(), Thing()
    readiness = Readiness({"database": thing}, timeout_s=30, fresh_s=1.0, clock=clock)
    asyncio.run(readiness.missing())
    clock.now_s += later_s
    assert asyncio.run(readiness.missing()) == []
    assert thing.num_asked == num_asked
