from math import log

import numpy as np
import pytest
from numpy.typing import NDArray

from gating.alpha_ledger import allocate_alpha
from gating.betting import (
    LIFT_BETS,
    MARGIN_BETS,
    Bets,
    EProcess,
    bet_against_at_most,
    compute_interval,
    log_wealth,
)


def differences(
    rng: np.random.Generator, champion: float, challenger: float, count: int
) -> NDArray[np.float64]:
    return (rng.random(count) < challenger).astype(float) - (rng.random(count) < champion)


def test_wealth_is_the_mean_of_products_over_the_bets() -> None:
    expected = [
        log(0.25 * 1.5 + 0.75 * 1.25),
        log(0.25 * 1.5 * 0.75 + 0.75 * 1.25 * 0.875),
    ]
    assert log_wealth([1.0, -0.5], Bets((0.5, 0.25), (0.25, 0.75))) == pytest.approx(expected)


def test_a_bound_shifts_and_scales_the_values() -> None:
    process = bet_against_at_most([1.0], bound=0.5, bets=Bets((0.6,), (1.0,)))
    assert process.log_e_value == pytest.approx(log(1 + 0.6 * 0.5 / 1.5))
    assert bet_against_at_most(
        [-1.0], bound=-0.5, bets=Bets((0.6,), (1.0,))
    ).log_e_value == pytest.approx(log(1 + 0.6 * (-0.5 / 1.5)))


def test_a_test_may_stop_at_its_highest_value() -> None:
    process = bet_against_at_most([1.0, 1.0, -1.0, -1.0], bets=Bets((0.5,), (1.0,)))
    assert process.max_log_e_value == pytest.approx(2 * log(1.5))
    assert process.log_e_value == pytest.approx(2 * log(1.5) + 2 * log(0.5))
    assert process.num_values == 4
    assert process.rejects(1 / 2.25)
    assert not process.rejects(0.4)


def test_without_values_nothing_is_proven() -> None:
    assert bet_against_at_most([]) == EProcess(0.0, 0.0, 0)
    assert not bet_against_at_most([]).rejects(0.99)


def test_losing_values_never_fall_below_a_highest_of_zero() -> None:
    assert bet_against_at_most([-1.0, -1.0]).max_log_e_value == 0.0


@pytest.mark.parametrize("value", [float("nan"), 1.5, float("inf"), -1.01])
def test_values_out_of_range_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"\[-1, 1\]"):
        bet_against_at_most([0.0, value])


def test_false_promotions_stay_below_alpha_at_a_look_after_every_pair() -> None:
    rng = np.random.default_rng(1)
    alpha, runs = 0.05, 1000
    for rate in (0.7, 0.97):
        false = sum(
            bet_against_at_most(differences(rng, rate, rate, 2000)).rejects(alpha)
            for _ in range(runs)
        )
        # alpha and 1.645 standard errors
        assert false <= 61


@pytest.mark.parametrize(("champion", "lift"), [(0.4, 0.15), (0.55, 0.15), (0.6, 0.12)])
def test_a_lift_of_12_to_15_points_needs_130_to_230_pairs(champion: float, lift: float) -> None:
    rng = np.random.default_rng(2)
    alpha = allocate_alpha(alpha=0.1, number=1, num_promoted=0)
    needed = []
    for _ in range(200):
        wealth = log_wealth(differences(rng, champion, champion + lift, 3000), LIFT_BETS)
        needed.append(int(np.argmax(wealth >= -log(alpha))) + 1)
    assert 100 <= np.median(needed) <= 230


def test_the_interval_holds_the_mean_at_every_look() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(100):
        outcomes = (rng.random(200) < 0.6).astype(float)
        looks = [compute_interval(list(outcomes[:count])) for count in (20, 60, 200)]
        missed += any(not low <= 0.6 <= high for low, high in looks)
    assert missed <= 9


def test_the_interval_shrinks_and_knows_its_limits() -> None:
    assert compute_interval([]) == (0.0, 1.0)
    low, high = compute_interval([1.0] * 500)
    assert low > 0.9
    assert high == 1.0
    narrow = compute_interval([0.0, 1.0] * 500)
    assert 0.4 < narrow[0] < 0.5 < narrow[1] < 0.6
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        compute_interval([float("nan")])


def test_the_interval_of_a_constant_between_two_grid_points_holds_it() -> None:
    low, high = compute_interval([0.5025] * 100_000)
    assert low <= 0.5025 <= high
    assert high - low <= 0.02


def test_stakes_add_up_and_every_bet_is_fair() -> None:
    for bets in (LIFT_BETS, MARGIN_BETS):
        assert sum(bets.weights) == pytest.approx(1.0)
        assert len(bets.sizes) == len(bets.weights)
        assert all(0 < size < 1 for size in bets.sizes)
