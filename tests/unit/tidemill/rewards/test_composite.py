from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.tidemill.rewards.test_votes import vote
from tidemill.contracts.events import Comment
from tidemill.rewards.bounds import LEAST_WEIGHT
from tidemill.rewards.composite import Component, combine, compute_reward
from tidemill.rewards.metrics_file import parse_metrics

COMPONENTS = st.lists(
    st.builds(Component, st.floats(0, 1), st.floats(0, 1e6)), min_size=1, max_size=8
)
VETOING = st.lists(
    st.builds(
        Component,
        st.floats(0, 1),
        st.just(0.0) | st.floats(LEAST_WEIGHT, 1e6),
        st.none() | st.floats(0, 1),
    ),
    min_size=1,
    max_size=6,
)


def test_the_reward_is_the_weighted_mean() -> None:
    # Weights 1 and 3: 1.0 and 1.5, over 4.
    assert combine([Component(1.0, 1.0), Component(0.5, 3.0)]) == 0.625


def test_a_veto_makes_it_zero_whatever_the_rest_says() -> None:
    assert combine([Component(1.0, 9.0), Component(0.4, 0.0, veto_below=0.5)]) == 0.0
    assert combine([Component(1.0, 9.0), Component(0.5, 0.0, veto_below=0.5)]) == 1.0


def test_without_any_weight_there_is_no_reward() -> None:
    assert combine([]) is None
    assert combine([Component(1.0, 0.0)]) is None


@given(COMPONENTS, st.randoms())
def test_the_order_of_components_does_not_matter(components: list[Component], random: Any) -> None:
    shuffled = list(components)
    random.shuffle(shuffled)
    value = combine(components)
    assert value == combine(shuffled)
    assert value is None or 0 <= value <= 1


SPEC = parse_metrics(
    """
    [metrics.accepted]
    type = "bool"
    window_s = 60
    [metrics.kept]
    type = "edit"
    window_s = 60
    weight = 3
    optional = true
    [metrics.note]
    type = "comment"
    window_s = 60
    """
)
DEFAULTED = parse_metrics('[metrics.accepted]\ntype = "bool"\nwindow_s = 60\ndefault = true')
CHECKED = parse_metrics(
    """
    [metrics.accepted]
    type = "bool"
    window_s = 60
    optional = true
    [verifiers.valid]
    plugin = "valid"
    weight = 1
    veto_below = 0.5
    """
)


def test_a_needed_answer_that_is_missing_leaves_no_reward() -> None:
    kept = {"kept": [vote(1, 1.0, metric="kept")]}
    assert compute_reward(SPEC, kept, completion="", checked={}) is None


def test_an_optional_silence_leaves_the_metric_out() -> None:
    reward = compute_reward(SPEC, {"accepted": [vote(1)]}, completion="", checked={})
    assert reward is not None
    assert (reward.value, reward.components) == (1.0, {"accepted": 1.0})
    assert not reward.is_defaulted


def test_a_default_stands_in_for_silence_and_says_so() -> None:
    silent = compute_reward(DEFAULTED, {}, completion="", checked={})
    answered = compute_reward(DEFAULTED, {"accepted": [vote(1)]}, completion="", checked={})
    assert silent is not None
    assert answered is not None
    assert (silent.value, silent.is_defaulted) == (1.0, True)
    assert (answered.value, answered.is_defaulted) == (1.0, False)


def test_words_under_a_scored_metric_count_as_silence() -> None:
    words = {"accepted": [vote(1, Comment(comment="x"))]}
    assert compute_reward(SPEC, words, completion="", checked={}) is None


def test_a_verifier_counts_and_may_veto() -> None:
    answer = {"accepted": [vote(1)]}
    good = compute_reward(CHECKED, answer, completion="", checked={"valid": 0.5})
    bad = compute_reward(CHECKED, answer, completion="", checked={"valid": 0.4})
    alone = compute_reward(CHECKED, {}, completion="", checked={"valid": 0.75})
    assert good is not None
    assert bad is not None
    assert alone is not None
    assert (good.value, bad.value) == (0.75, 0.0)
    assert bad.components == {"accepted": 1.0, "valid": 0.4}
    assert (alone.value, alone.is_defaulted) == (0.75, False)


def test_when_all_are_optional_and_silent_there_is_no_reward() -> None:
    spec = parse_metrics('[metrics.a]\ntype = "bool"\nwindow_s = 1\noptional = true')
    assert compute_reward(spec, {}, completion="", checked={}) is None


@given(VETOING, st.randoms())
def test_any_components_in_any_order_give_one_reward_between_0_and_1(
    components: list[Component], random: Any
) -> None:
    value = combine(components)
    shuffled = list(components)
    random.shuffle(shuffled)
    assert combine(shuffled) == value
    if value is None:
        assert all(component.weight == 0 for component in components)
        return
    assert 0 <= value <= 1
    if any(component.is_veto for component in components):
        assert value == 0
        return
    weighted = [component.score for component in components if component.weight > 0]
    assert min(weighted) - 1e-9 <= value <= max(weighted) + 1e-9
