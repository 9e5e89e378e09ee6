import pytest

from examples.command_assistant.tally import Tally


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tally(clock: Clock) -> Tally:
    tally = Tally(clock=clock)
    tally.start()
    return tally


def test_failed_requests_are_requests_too(tally) -> None:
    tally.answered("v1", is_liked=True)
    tally.failed("timeout")
    assert (tally.requests, tally.failed_requests, tally.failures) == (2, 1, ["timeout"])


def test_only_acknowledged_feedback_counts_as_sent(tally) -> None:
    for status in (202, 200, 409, 422, 503, 0):
        tally.told(status)
    assert (tally.feedback_sent, tally.feedback_refused) == (2, 4)


def test_acceptance_is_that_of_the_last_seconds(tally, clock) -> None:
    assert tally.acceptance() is None
    for _ in range(4):
        tally.voted(is_accepted=False)
    clock.now += 20
    for is_accepted in (True, True, True, False):
        tally.voted(is_accepted=is_accepted)
    clock.now += 1
    assert tally.acceptance(last_s=10) == 0.75
    assert tally.acceptance(last_s=60) == 0.375  # 3 of 8


def test_the_curve_has_a_point_for_each_span_with_answers(tally, clock) -> None:
    tally.answered("v1", is_liked=True)
    tally.answered("v1", is_liked=False)
    clock.now += 12
    tally.answered("v2", is_liked=True)
    assert tally.curve("liked", width_s=5) == [(2.5, 0.5), (12.5, 1.0)]
    assert tally.curve("accepted", width_s=5) == []


def test_the_rate_is_by_the_second(tally, clock) -> None:
    for _ in range(10):
        tally.answered("v1", is_liked=True)
    clock.now += 1
    assert tally.rate(last_s=5) == 2.0
