from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.closing import close
from ingest.revising import Closed, revise
from tests.factories import NOW, make_interaction
from tests.unit.tidemill.rewards.test_votes import vote
from tidemill.contracts.events import Comment
from tidemill.contracts.experience import Outcome
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.rewards.votes import Vote

SPEC = parse_metrics(
    """
    [metrics.accepted]
    type = "bool"
    window_s = 60
    default = false
    [metrics.stars]
    type = "float"
    range = [1, 5]
    window_s = 120
    optional = true
    aggregation = "mean"
    [metrics.note]
    type = "comment"
    window_s = 10
    [verifiers.valid]
    plugin = "valid"
    """
)
VERIFIED = {"valid": 1.0}


def closed(votes: list[Vote]) -> Closed:
    event = make_interaction()
    end = close(event, votes, SPEC, served_at=NOW, checked=VERIFIED)
    assert end.experience is not None
    return Closed(end.experience, event.content.completion, NOW)


def rewards(votes: list[Vote]) -> list[tuple[int, float]]:
    return [(one.vote.offset, one.reward.value) for one in revise(closed(votes), votes, SPEC)]


def test_a_late_answer_revises_the_reward() -> None:
    assert rewards([vote(61)]) == [(610, 1.0)]
    (revision,) = revise(closed([vote(61)]), [vote(61)], SPEC)
    assert revision.reward.components == {"accepted": 1.0, "valid": 1.0}
    assert not revision.reward.is_defaulted


def test_in_time_nothing_is_revised() -> None:
    assert rewards([vote(60), vote(10, 4.0, metric="stars")]) == []


def test_a_late_answer_that_changes_nothing_makes_no_revision() -> None:
    note = vote(61, Comment(comment="late"), metric="note")
    assert rewards([vote(1), vote(61), note]) == []


def test_each_revision_holds_all_before_it_in_the_log() -> None:
    votes = [vote(1), vote(62, False), vote(61, rater="s", value=False), vote(63)]
    # The two raters' later answers: majority is none here, the last one of all counts.
    assert rewards(votes) == [(610, 0.5), (630, 1.0)]


def test_an_answer_in_time_of_a_longer_window_counts_in_every_revision() -> None:
    assert rewards([vote(61), vote(100, 5.0, metric="stars")]) == [(610, 1.0)]


def test_only_the_asked_places_are_returned() -> None:
    votes = [vote(61), vote(62, False), vote(63)]
    found = revise(closed(votes), votes, SPEC, places={(0, 620)})
    assert [(one.vote.offset, one.reward.value) for one in found] == [(620, 0.5)]
    assert revise(closed(votes), votes, SPEC, places=()) == []


@pytest.mark.parametrize("change", [{"outcome": Outcome.MALFORMED}, {"reward_spec_hash": "1" * 64}])
def test_what_feedback_cannot_change_has_no_revision(change: dict[str, str]) -> None:
    one = closed([vote(61)])
    other = replace(one, experience=replace(one.experience, **change))  # type: ignore[arg-type]
    assert revise(other, [vote(61)], SPEC) == []


def test_feedback_that_had_expired_before_it_was_served_says_nothing() -> None:
    assert rewards([vote(61, expires_at=NOW.replace(year=2025))]) == []


@given(
    said=st.lists(
        st.tuples(st.integers(0, 200), st.booleans(), st.sampled_from("rst")),
        unique_by=lambda one: one[0],
        max_size=12,
    ),
)
def test_one_by_one_gives_the_same_as_all_at_once(said: list[tuple[int, bool, str]]) -> None:
    votes = [vote(at, value, rater=rater) for at, value, rater in said]
    one = closed(votes)
    whole = revise(one, votes, SPEC)
    by_log = sorted(votes, key=lambda each: each.order)
    single = [
        revision
        for index, each in enumerate(by_log)
        for revision in revise(one, by_log[: index + 1], SPEC, places={(0, each.offset)})
    ]
    assert single == whole
