from math import lgamma, log

import numpy as np
import pytest

from gating.sample_ratio import check_sample_ratio


def test_the_e_value_by_hand() -> None:
    # Beta(10, 10) prior, one challenger subject: its mixture likelihood is 1/2, as declared.
    assert check_sample_ratio(0, 1, share=0.5).log_e_value == pytest.approx(0.0)
    expected = (
        lgamma(12) + lgamma(10) - lgamma(22) - (lgamma(10) + lgamma(10) - lgamma(20)) - 2 * log(0.5)
    )
    assert check_sample_ratio(0, 2, share=0.5).log_e_value == pytest.approx(expected)


def test_no_subjects_prove_nothing() -> None:
    assert not check_sample_ratio(0, 0, share=0.3).is_broken(0.5)


def test_a_lost_arm_is_found_and_a_fair_one_is_not() -> None:
    assert check_sample_ratio(600, 400, share=0.5).is_broken(0.001)
    assert not check_sample_ratio(510, 490, share=0.5).is_broken(0.001)
    assert not check_sample_ratio(905, 95, share=0.1).is_broken(0.001)


def test_fair_arms_are_rarely_accused_at_any_look() -> None:
    rng = np.random.default_rng(5)
    accused = 0
    for _ in range(300):
        arms = np.cumsum(rng.random(500) < 0.5)
        accused += any(
            check_sample_ratio(n - int(arms[n - 1]), int(arms[n - 1]), share=0.5).is_broken(0.05)
            for n in range(10, 501, 10)
        )
    assert accused <= 21


@pytest.mark.parametrize(("one", "other", "share"), [(-1, 0, 0.5), (1, 1, 0.0), (1, 1, 1.0)])
def test_nonsense_is_refused(one: int, other: int, share: float) -> None:
    with pytest.raises(ValueError, match="make no sense"):
        check_sample_ratio(one, other, share=share)
