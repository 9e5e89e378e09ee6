from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.advantages import (
    BaselineState,
    ContextHistory,
    compute_group_advantages,
    compute_leave_one_out_means,
    compute_shrunk_baselines,
    scale_by_std,
    update_baseline,
)
from tidemill.errors import EstimatorError

rewards_strategy = st.lists(st.floats(0, 1), min_size=2, max_size=20)


def state_of(**histories: tuple[float, float]) -> BaselineState:
    return BaselineState(MappingProxyType({k: ContextHistory(*v) for k, v in histories.items()}))


def test_leave_one_out_means_by_hand() -> None:
    # Sum 2; without 1: 1/2, without 0: 2/2, without 1: 1/2.
    assert compute_leave_one_out_means([1.0, 0.0, 1.0]) == [0.5, 1.0, 0.5]


@pytest.mark.parametrize("rewards", [[], [1.0]])
def test_a_single_reward_has_no_leave_one_out_mean(rewards: list[float]) -> None:
    with pytest.raises(EstimatorError, match="at least two"):
        compute_leave_one_out_means(rewards)


def test_a_baseline_is_shrunk_towards_the_rest_of_the_batch() -> None:
    state = state_of(known=(6.0, 0.5))
    found = compute_shrunk_baselines(
        state, ["known", "new", "new"], [1.0, 0.0, 1.0], prior_weight=4.0
    )
    # known: (6 * 0.5 + 4 * 0.5) / 10; new: no history, so its leave-one-out mean.
    assert found == pytest.approx([0.5, 1.0, 0.5])


def test_a_long_history_outweighs_the_batch() -> None:
    found = compute_shrunk_baselines(
        state_of(a=(96.0, 1.0)), ["a", "b"], [0.0, 0.0], prior_weight=4.0
    )
    # Mean of 96 ones and 4 zeros.
    assert found == pytest.approx([0.96, 0.0])


def test_a_reward_changes_the_baseline_only_afterwards() -> None:
    before = BaselineState.empty()
    after = update_baseline(before, ["a", "a"], [1.0, 0.0], forgetting=0.5, max_contexts=10)
    assert before.histories == {}
    # First: weight 1, mean 1. Second: kept 0.5, weight 1.5, mean (0.5 * 1 + 0) / 1.5.
    assert after.histories["a"].weight == pytest.approx(1.5)
    assert after.histories["a"].mean == pytest.approx(1 / 3)


def test_the_weight_of_a_history_is_bounded_by_forgetting() -> None:
    state = BaselineState.empty()
    for _ in range(500):
        state = update_baseline(state, ["a"], [1.0], forgetting=0.95, max_contexts=10)
    # The geometric series ends at 1 / (1 - 0.95).
    assert state.histories["a"].weight == pytest.approx(20.0, abs=1e-6)


def test_contexts_longest_without_a_reward_are_forgotten_first() -> None:
    state = state_of(a=(1.0, 0.0), b=(1.0, 0.0), c=(1.0, 0.0))
    state = update_baseline(state, ["a", "d"], [1.0, 1.0], forgetting=1.0, max_contexts=3)
    assert list(state.histories) == ["c", "a", "d"]


@given(rewards_strategy, st.floats(0.5, 10))
def test_without_history_equal_contexts_get_the_leave_one_out_mean(
    rewards: list[float], prior_weight: float
) -> None:
    contexts = ["same"] * len(rewards)
    found = compute_shrunk_baselines(
        BaselineState.empty(), contexts, rewards, prior_weight=prior_weight
    )
    assert found == pytest.approx(compute_leave_one_out_means(rewards))


def test_scaling_keeps_signs_and_does_not_centre() -> None:
    # Mean 0.5, std 0.5.
    assert scale_by_std([1.0, 0.0, 1.0, 0.0]) == [2.0, 0.0, 2.0, 0.0]


def test_nearly_equal_advantages_are_not_blown_up() -> None:
    assert scale_by_std([0.01, 0.01]) == pytest.approx([0.1, 0.1])
    assert scale_by_std([]) == []


def test_group_advantages_by_hand() -> None:
    found = compute_group_advantages(["a", "b", "a", "b"], [1.0, 0.5, 0.0, 0.5])
    # Group a: mean 0.5; group b has no variance, so no signal.
    assert found.advantages == {0: 0.5, 2: -0.5}
    assert found.num_zero_variance_groups == 1


def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(EstimatorError, match="one rollout"):
        compute_group_advantages(["a", "b", "a"], [1.0, 0.0, 0.0])


@given(rewards_strategy)
def test_group_advantages_sum_to_zero(rewards: list[float]) -> None:
    found = compute_group_advantages(["g"] * len(rewards), rewards)
    assert sum(found.advantages.values()) == pytest.approx(0, abs=1e-9)
