from examples.command_assistant.tally import Tally


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started() -> tuple[Tally, Clock]:
    clock = Clock()
    tally = Tally(clock=clock)
    tally.start()
    return tally, clock


def test_rates_and_acceptance_cover_the_last_whole_seconds() -> None:
    tally, clock = started()
    for _ in range(4):
        tally.answered("v1-aaaaaaaaaaaa", is_liked=True)
    for is_accepted in (True, False, True, True):
        tally.voted(is_accepted=is_accepted)
    clock.now += 1
    assert tally.rate(last_s=1) == 4
    assert tally.acceptance(last_s=1) == 0.75
    clock.now += 10
    assert tally.rate(last_s=5) == 0
    assert tally.acceptance(last_s=5) is None


def test_a_curve_has_a_point_for_each_span_with_traffic() -> None:
    tally, clock = started()
    tally.answered("v1-aaaaaaaaaaaa", is_liked=True)
    clock.now += 12
    tally.answered("v2-bbbbbbbbbbbb", is_liked=False)
    tally.answered("v2-bbbbbbbbbbbb", is_liked=True)
    assert tally.curve("liked", width_s=5) == [(2.5, 1.0), (12.5, 0.5)]
    assert tally.curve("accepted", width_s=5) == []


def test_failures_and_refusals_are_counted_apart() -> None:
    tally, _ = started()
    tally.failed("APITimeoutError: late")
    tally.told(202)
    tally.told(200)
    tally.told(422)
    assert (tally.requests, tally.failed_requests) == (1, 1)
    assert (tally.feedback_sent, tally.feedback_refused) == (2, 1)
    assert tally.failures == ["APITimeoutError: late"]
