from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.factories import NOW
from tidemill.contracts.events import FeedbackValue
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.rewards.votes import Vote, votes_that_count

METRICS = parse_metrics(
    """
    [metrics.accepted]
    type = "bool"
    window_s = 60
    [metrics.clicks]
    type = "float"
    range = [0, 10]
    aggregation = "sum"
    window_s = 10
    [metrics.note]
    type = "comment"
    window_s = 60
    """
)


def vote(at: float = 0, value: FeedbackValue = True, **over: Any) -> Vote:
    defaults: dict[str, Any] = {
        "metric": "accepted",
        "rater": "r",
        "value": value,
        "appended_at": NOW + timedelta(seconds=at),
        "partition": 0,
        "offset": int(at * 10),
        "expires_at": NOW + timedelta(hours=1),
    }
    return Vote(**(defaults | over))


def values(votes: list[Vote], metrics: MetricsFile = METRICS) -> dict[str, list[FeedbackValue]]:
    chosen = votes_that_count(votes, metrics, served_at=NOW)
    return {name: [one.value for one in found] for name, found in chosen.items()}


def test_nothing_counts_after_the_answer_that_closes() -> None:
    closing = METRICS.model_copy(
        update={
            "metrics": METRICS.metrics
            | {"accepted": METRICS.metrics["accepted"].model_copy(update={"closes": True})}
        }
    )
    votes = [vote(2, False), vote(1), vote(0, 3.0, metric="clicks"), vote(3, 4.0, metric="clicks")]
    chosen = votes_that_count(votes, closing, served_at=NOW)
    assert {name: [one.value for one in found] for name, found in chosen.items()} == {
        "clicks": [3.0],
        "accepted": [True],
    }


def test_a_rater_has_one_vote_and_it_is_the_last() -> None:
    assert values([vote(2, False), vote(1), vote(3, rater="s")]) == {"accepted": [False, True]}


def test_nobody_known_replaces_nobody() -> None:
    assert values([vote(1, rater=None), vote(2, False, rater=None)]) == {"accepted": [True, False]}


def test_where_repeats_are_summed_every_value_counts() -> None:
    clicks = [vote(number, 1.0, metric="clicks") for number in (1, 2)]
    assert values(clicks) == {"clicks": [1.0, 1.0]}


def test_each_metric_has_its_own_window() -> None:
    late = vote(10.001, 1.0, metric="clicks")
    assert values([late, vote(60), vote(60.001, False)]) == {"accepted": [True]}


def test_words_and_undeclared_metrics_are_no_votes() -> None:
    assert values([vote(metric="note"), vote(metric="gone")]) == {}


def test_feedback_that_had_expired_before_the_interaction_came_is_not_about_it() -> None:
    assert values([vote(-5, expires_at=NOW - timedelta(seconds=1))]) == {}


def test_equal_times_are_ordered_by_partition_and_offset() -> None:
    votes = [vote(1, False, partition=1, offset=0), vote(1, True, partition=0, offset=9)]
    assert values(votes) == {"accepted": [False]}


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.integers(0, 700)), max_size=12),
    st.randoms(),
)
def test_the_order_of_reading_does_not_matter(
    drawn: list[tuple[bool, str, int]], random: Any
) -> None:
    votes = [
        vote(at / 10, value, rater=rater, offset=index)
        for index, (value, rater, at) in enumerate(drawn)
    ]
    expected = values(votes)
    random.shuffle(votes)
    assert values(votes) == expected
