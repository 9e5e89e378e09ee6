import numpy as np
import pytest

from gating.betting import LIFT_BETS
from gating.guardrails import (
    LONGER,
    SHORTER,
    GuardrailState,
    LengthRule,
    check_length,
    check_malformed,
)
from gating.pairing import pair_outcomes


def flags(rng: np.random.Generator, rate: float, count: int) -> list[float]:
    return [float(flag) for flag in rng.random(count) < rate]


def test_the_slack_of_one_pair_by_hand() -> None:
    rail = check_malformed(pair_outcomes([0.0], [1.0], share=0.5), margin=0.25, alpha=0.05)
    # slack = (0.25 - 1) / 1.25 = -0.6
    stakes = zip(LIFT_BETS.sizes, LIFT_BETS.weights, strict=True)
    expected = float(np.log(sum(weight * (1 + 0.6 * size) for size, weight in stakes)))
    assert rail.log_e_broken == pytest.approx(expected)
    assert (rail.champion, rail.challenger, rail.num_pairs) == (0.0, 1.0, 1)
    assert rail.state is GuardrailState.UNDECIDED


def test_two_clean_arms_hold_within_100_pairs() -> None:
    pairs = pair_outcomes([0.0] * 100, [0.0] * 100, share=0.5)
    assert check_malformed(pairs, margin=0.05, alpha=0.05).state is GuardrailState.HOLDS


def test_a_rise_of_malformed_calls_breaks() -> None:
    rng = np.random.default_rng(6)
    pairs = pair_outcomes(flags(rng, 0.02, 100), flags(rng, 0.4, 100), share=0.5)
    assert check_malformed(pairs, margin=0.05, alpha=0.05).state is GuardrailState.BROKEN


def test_few_pairs_decide_nothing() -> None:
    pairs = pair_outcomes([0.0] * 10, [0.0] * 10, share=0.5)
    assert check_malformed(pairs, margin=0.05, alpha=0.05).state is GuardrailState.UNDECIDED
    empty = check_malformed(pair_outcomes([], [], share=0.5), margin=0.05, alpha=0.05)
    assert empty.state is GuardrailState.UNDECIDED
    assert empty.champion == 0.0


@pytest.mark.parametrize(
    ("length", "longer", "shorter"),
    [(20, "holds", "holds"), (60, "broken", "holds"), (4, "holds", "broken")],
)
def test_length_stops_in_both_directions(length: int, longer: str, shorter: str) -> None:
    rule = LengthRule(cap=80, tolerance=0.5, alpha=0.05)
    up, down = check_length([20.0] * 200, [float(length)] * 200, share=0.5, rule=rule)
    assert (up.name, up.state) == (LONGER, longer)
    assert (down.name, down.state) == (SHORTER, shorter)


def test_lengths_above_the_cap_count_as_the_cap() -> None:
    rule = LengthRule(cap=100, tolerance=0.5, alpha=0.05)
    up, _ = check_length([100.0] * 50, [1_000_000.0] * 50, share=0.5, rule=rule)
    assert up.state is not GuardrailState.BROKEN


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_each_length_is_capped_before_the_mean_of_a_block(share: float) -> None:
    rule = LengthRule(cap=100, tolerance=0.5, alpha=0.05)
    block, single = [1000.0] + [10.0] * 8, [1000.0]
    small_challenger = share < 0.5
    champion, challenger = (block, single) if small_challenger else (single, block)
    up, down = check_length(champion, challenger, share=share, rule=rule)
    means = (20.0, 100.0) if small_challenger else (100.0, 20.0)
    assert (up.champion, up.challenger) == (down.champion, down.challenger) == means
    assert up.num_pairs == down.num_pairs == 1


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_equal_arms_with_a_few_very_long_answers_hold_at_an_unequal_share(
    share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    champion, challenger = (
        [1000.0 if is_long else 10.0 for is_long in rng.random(count) < 0.1]
        for count in (round(20_000 * (1 - share)), round(20_000 * share))
    )
    rule = LengthRule(cap=436, tolerance=0.5, alpha=0.05)  # four times the mean of 109
    rails = check_length(champion, challenger, share=share, rule=rule)
    assert [rail.state for rail in rails] == [GuardrailState.HOLDS] * 2


def test_a_rise_beyond_the_margin_rarely_passes_at_any_look() -> None:
    rng = np.random.default_rng(7)
    passed = 0
    for _ in range(300):
        pairs = pair_outcomes(flags(rng, 0.05, 500), flags(rng, 0.15, 500), share=0.5)
        rail = check_malformed(pairs, margin=0.1, alpha=0.05)
        passed += rail.state is GuardrailState.HOLDS
    assert passed <= 21
