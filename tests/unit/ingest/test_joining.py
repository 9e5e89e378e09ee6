from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.joining import Claim, FeedbackState, settle
from tests.ingest_rig import METRICS, seconds
from tidemill.rewards.metrics_file import parse_metrics

SPEC = parse_metrics(METRICS + '[metrics.best]\ntype = "bool"\nwindow_s = 60\naggregation = "max"')


def claim(feedback_id: str, at: float = 1, **over: Any) -> Claim:
    defaults: dict[str, Any] = {
        "tenant": "t",
        "feedback_id": feedback_id,
        "target_id": "target",
        "metric": "accepted",
        "rater": "r",
        "appended_at": seconds(at),
        "partition": 0,
        "offset": round(at * 10),
        "expires_at": seconds(at) + timedelta(seconds=600),
        "state": FeedbackState.PENDING,
    }
    return Claim(**(defaults | over))


def states(*claims: Claim, served: tuple[float, ...] = (0,)) -> str:
    settled = settle(claims, [seconds(at) for at in served], SPEC)
    return " ".join(settled["t", one.feedback_id].value for one in claims)


@pytest.mark.parametrize(
    ("at", "served", "state"),
    [
        (1, (), "pending"),
        (1, (0,), "joined"),
        (-1, (0,), "joined"),
        (60, (0,), "joined"),
        (60.1, (0,), "late"),
        (60.1, (0, 50), "joined"),
        (-601, (0,), "dead_lettered"),
        (-601, (0, -100), "joined"),
        (-600, (0,), "joined"),
    ],
)
def test_append_times_decide(at: float, served: tuple[float, ...], state: str) -> None:
    assert states(claim("f", at), served=served) == state


def test_the_last_answer_of_a_rater_supersedes_the_earlier_ones() -> None:
    votes = (claim("a", 1), claim("b", 2), claim("c", 3, rater="s"), claim("d", 4, rater=None))
    assert states(*votes) == "superseded joined joined joined"


def test_a_late_answer_supersedes_nothing() -> None:
    assert states(claim("a", 1), claim("b", 61)) == "joined late"


def test_where_every_value_counts_nothing_is_superseded() -> None:
    assert states(claim("a", 1, metric="best"), claim("b", 2, metric="best")) == "joined joined"


@pytest.mark.parametrize("final", [FeedbackState.DEAD_LETTERED, FeedbackState.ERASED])
def test_a_final_state_stays(final: FeedbackState) -> None:
    assert states(claim("a", state=final)) == final.value


def test_a_metric_that_is_declared_no_more_keeps_its_states() -> None:
    assert states(claim("a", metric="gone", state=FeedbackState.JOINED)) == "joined"


@given(
    st.lists(st.tuples(st.sampled_from("rs"), st.integers(-700, 100)), max_size=8),
    st.lists(st.integers(-100, 100), max_size=3),
    st.randoms(),
)
def test_which_topic_is_read_first_makes_no_difference(
    drawn: list[tuple[str, int]], served: list[int], random: Any
) -> None:
    """Each topic is read in its own order, the two in any mixture; each time all is settled."""
    in_order = sorted(enumerate(drawn), key=lambda one: (one[1][1], one[0]))
    feedback = [claim(f"f{n}", at, rater=rater, offset=n) for n, (rater, at) in in_order]
    interactions = [seconds(at) for at in sorted(served)]
    at_once = settle(feedback, interactions, SPEC)
    turns = ["f"] * len(feedback) + ["i"] * len(interactions)
    random.shuffle(turns)
    seen: list[Claim] = []
    known: list[datetime] = []
    for turn in turns:
        if turn == "f":
            seen.append(feedback[len(seen)])
        else:
            known.append(interactions[len(known)])
        settled = settle(seen, known, SPEC)
        seen = [one._replace(state=settled[one.key]) for one in seen]
    assert {one.key: one.state for one in seen} == at_once
