import pytest

from benchmarks.ingest.freshness import summarise
from benchmarks.ingest.offer import Offered, due_times


def test_requests_are_due_at_even_moments() -> None:
    assert due_times(10.0, 4, per_s=500) == pytest.approx((10.0, 10.002, 10.004, 10.006))


def test_a_wait_is_from_when_feedback_was_due_and_the_warm_up_is_left_out() -> None:
    offered = Offered(due_at=(1.0, 2.0, 3.0, 4.0), most_behind_s=0.25)
    seen_at = {"d": 4.25, "c": 3.5, "b": 2.125, "a": 9.0}
    seen = summarise("abcd", offered, seen_at, [0.0, 1.0, 1.5], num_warm_up=1)
    assert seen.model_dump() == {
        "p50_ms": 250.0,
        "p99_ms": 500.0,
        "most_behind_ms": 250.0,
        "look_p99_ms": 1000.0,
    }


def test_an_experience_that_was_never_seen_is_an_error() -> None:
    offered = Offered(due_at=(1.0, 2.0), most_behind_s=0.0)
    with pytest.raises(KeyError):
        summarise("ab", offered, {"a": 1.5}, [0.0, 1.0], num_warm_up=0)
