from hypothesis import given
from hypothesis import strategies as st

from ingest.rate_limits import Buckets


def buckets(per_s: float = 2, burst: int = 4, size: int = 10) -> Buckets[str]:
    return Buckets(per_s=per_s, burst=burst, size=size)


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    limit = buckets()
    assert [limit.take("a", 1, now_s=0) for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert limit.take("a", 1, now_s=0.25) == 0.25
    assert limit.take("a", 1, now_s=0.5) == 0
    assert limit.take("a", 1, now_s=0.5) == 0.5


def test_each_name_has_its_own_bucket() -> None:
    limit = buckets()
    assert limit.take("a", 4, now_s=0) == 0
    assert limit.take("b", 4, now_s=0) == 0
    assert limit.take("a", 1, now_s=0) > 0


def test_no_bucket_holds_more_than_a_burst() -> None:
    limit = buckets()
    limit.take("a", 1, now_s=0)
    assert limit.take("a", 4, now_s=1e9) == 0
    assert limit.take("a", 1, now_s=1e9) > 0


def test_more_than_a_burst_passes_when_full_and_is_paid_back() -> None:
    limit = buckets()
    assert limit.take("a", 10, now_s=0) == 0
    assert limit.take("a", 1, now_s=0) == 3.5
    assert limit.take("a", 10, now_s=4) == 1
    assert limit.take("a", 10, now_s=5) == 0


def test_a_rate_of_0_is_no_limit_and_needs_no_memory() -> None:
    limit = buckets(per_s=0)
    assert all(limit.take("a", 1000, now_s=0) == 0 for _ in range(10))
    assert not limit._buckets


def test_the_name_that_was_quiet_longest_is_forgotten() -> None:
    limit = buckets(size=2)
    for name in ("a", "b", "a", "c"):
        limit.take(name, 1, now_s=0)
    assert list(limit._buckets) == ["a", "c"]


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(1, 9)), max_size=50))
def test_never_more_than_a_burst_and_the_rate_passes(sent: list[tuple[float, int]]) -> None:
    limit = buckets()
    now_s, passed = 0.0, 0
    for pause_s, cost in sent:
        now_s += pause_s
        if limit.take("a", cost, now_s=now_s) == 0:
            passed += cost
    # What costs more than a full bucket leaves a debt, of at most its own cost.
    assert passed <= 4 + 2 * now_s + 9 + 1e-6
