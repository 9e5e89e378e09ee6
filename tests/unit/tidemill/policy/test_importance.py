"""Ratios, their truncation, the effective sample size and the three KL estimates."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from tidemill.policy.importance import (
    MAX_LOG_RATIO,
    effective_sample_size,
    importance_ratio,
    kl_k1,
    kl_k2,
    kl_k3,
    log_importance_ratio,
    truncated_importance_ratio,
)

logprobs = st.lists(st.floats(-30, 0), min_size=1, max_size=20)


@given(logprobs)
def test_equal_log_probs_give_ratio_one(values: list[float]) -> None:
    same = tensor(values)
    assert importance_ratio(same, same).tolist() == [1.0] * len(values)
    assert log_importance_ratio(same, same).abs().max() == 0


def test_the_ratio_is_the_quotient_of_probabilities() -> None:
    target, behaviour = tensor([0.5, 0.2]).log(), tensor([0.25, 0.4]).log()
    assert importance_ratio(target, behaviour).tolist() == pytest.approx([2.0, 0.5])


def test_no_ratio_overflows() -> None:
    ratio = importance_ratio(tensor([0.0, -1000.0]), tensor([-1000.0, 0.0]))
    assert ratio.tolist() == pytest.approx([math.exp(MAX_LOG_RATIO), math.exp(-MAX_LOG_RATIO)])
    assert ratio.isfinite().all()


@given(logprobs, st.floats(0.5, 5))
def test_a_truncated_ratio_stays_under_its_cap(values: list[float], cap: float) -> None:
    target = tensor(values)
    ratio = truncated_importance_ratio(target, target.flip(0), cap=cap)
    assert (ratio <= cap + 1e-6).all()
    assert (ratio >= 0).all()


def test_effective_sample_size_counts_equal_weights() -> None:
    assert effective_sample_size(torch.ones(7)).item() == pytest.approx(7)
    # (1 + 3)^2 / (1 + 9) = 1.6
    assert effective_sample_size(tensor([1.0, 3.0])).item() == pytest.approx(1.6)
    assert effective_sample_size(torch.zeros(3)).item() == 0


@given(st.floats(0.01, 10), st.lists(st.floats(0.01, 5), min_size=1, max_size=9))
def test_effective_sample_size_ignores_scale(scale: float, weights: list[float]) -> None:
    size = effective_sample_size(tensor(weights)).item()
    assert effective_sample_size(scale * tensor(weights)).item() == pytest.approx(size, rel=1e-4)
    assert 1 - 1e-4 <= size <= len(weights) + 1e-4


def test_kl_estimates_by_numbers() -> None:
    log_ratio = tensor([0.5])
    assert kl_k1(log_ratio).item() == pytest.approx(-0.5)
    assert kl_k2(log_ratio).item() == pytest.approx(0.125)
    assert kl_k3(log_ratio).item() == pytest.approx(math.exp(0.5) - 1 - 0.5)


@given(st.floats(-100, 100))
def test_k3_is_never_negative(value: float) -> None:
    estimate = kl_k3(tensor([value]))
    assert estimate.isfinite().all()
    assert estimate.item() >= 0


def test_k1_and_k3_estimate_the_exact_kl() -> None:
    # The expectation over the behaviour policy, summed exactly over four outcomes.
    behaviour, target = tensor([0.4, 0.3, 0.2, 0.1]), tensor([0.1, 0.2, 0.3, 0.4])
    exact = (behaviour * (behaviour / target).log()).sum().item()
    log_ratio = (target / behaviour).log()
    assert (behaviour * kl_k1(log_ratio)).sum().item() == pytest.approx(exact, abs=1e-6)
    assert (behaviour * kl_k3(log_ratio)).sum().item() == pytest.approx(exact, abs=1e-6)
