"""Drawing tokens: by the numbers given, within the truncation, at the right rates."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import tensor

from tidemill.policy.sampling import counter_uniforms, kept_tokens, sample_tokens


def seeds(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_a_uniform_depends_on_seed_and_position_alone(seed: int, position: int) -> None:
    alone = counter_uniforms(seeds(seed), seeds(position))
    among = counter_uniforms(seeds(1, seed, 2), seeds(9, position, 9))
    assert alone[0] == among[1]
    assert 0 <= alone[0] < 1


def test_uniforms_are_uniform() -> None:
    count = 20_000
    draws = counter_uniforms(np.arange(count, dtype=np.uint64), seeds(*[3] * count))
    # Standard error of the mean: sqrt(1/12/n) = 0.002; of each tenth: 0.0021
    assert draws.mean().item() == pytest.approx(0.5, abs=0.01)
    share = torch.histc(draws, 10, 0, 1) / count
    assert (share - 0.1).abs().max() < 0.012
    along = counter_uniforms(seeds(*[5] * count), np.arange(count, dtype=np.uint64))
    assert np.corrcoef(along[1:], along[:-1])[0, 1] == pytest.approx(0, abs=0.03)


def test_tokens_come_at_their_probabilities() -> None:
    count = 20_000
    logits = tensor([0.1, 0.2, 0.7]).log().expand(count, 3)
    uniform = counter_uniforms(np.arange(count, dtype=np.uint64), seeds(*[0] * count))
    drawn = sample_tokens(logits, temperature_B=torch.ones(count), uniform_B=uniform)
    share = torch.bincount(drawn.ids_B, minlength=3) / count
    assert share.tolist() == pytest.approx([0.1, 0.2, 0.7], abs=0.012)
    assert (drawn.kept_mass_B == 1).all()
    expected = tensor([0.1, 0.2, 0.7]).log()[drawn.ids_B]
    assert (drawn.logprobs_B - expected).abs().max() < 1e-6


def test_the_draw_follows_the_cumulative_sum() -> None:
    logits = tensor([[0.25, 0.25, 0.5]]).log()
    for uniform, expected in ((0.0, 0), (0.24, 0), (0.26, 1), (0.51, 2), (0.999999, 2)):
        drawn = sample_tokens(logits, temperature_B=torch.ones(1), uniform_B=tensor([uniform]))
        assert drawn.ids_B.item() == expected


def test_the_log_prob_is_before_truncation() -> None:
    logits = tensor([[0.1, 0.2, 0.7]]).log().repeat(2, 1)
    drawn = sample_tokens(
        logits,
        temperature_B=torch.ones(2),
        uniform_B=tensor([0.0, 0.99]),
        top_k_B=tensor([2, 0]),
        top_p_B=tensor([1.0, 0.6]),
    )
    assert drawn.ids_B.tolist() == [1, 2]
    assert drawn.logprobs_B.tolist() == pytest.approx([math.log(0.2), math.log(0.7)])
    assert drawn.kept_mass_B.tolist() == pytest.approx([0.9, 0.7])


@given(
    st.lists(st.floats(-8, 8), min_size=5, max_size=5),
    st.floats(0.05, 1),
    st.integers(0, 5),
    st.floats(0, 0.999999),
)
def test_a_draw_is_always_a_kept_token(
    logits: list[float], top_p: float, top_k: int, uniform: float
) -> None:
    rows = tensor([logits])
    limits = {"top_p_B": tensor([top_p]), "top_k_B": tensor([top_k])}
    kept = kept_tokens(rows.softmax(-1), **limits)
    drawn = sample_tokens(rows, temperature_B=torch.ones(1), uniform_B=tensor([uniform]), **limits)
    assert kept[0, drawn.ids_B.item()]
    assert 1 <= kept.sum() <= (top_k or 5)
    assert 0 < drawn.kept_mass_B.item() <= 1
    assert drawn.logprobs_B.item() <= 0


def test_top_k_one_is_greedy() -> None:
    logits = torch.randn(6, 11, generator=torch.Generator().manual_seed(0))
    drawn = sample_tokens(
        logits,
        temperature_B=torch.full((6,), 1.0),
        uniform_B=torch.rand(6),
        top_k_B=torch.ones(6, dtype=torch.long),
    )
    assert drawn.ids_B.tolist() == logits.argmax(-1).tolist()


def test_top_p_one_keeps_every_token() -> None:
    assert kept_tokens(torch.full((1, 4), 0.25), top_p_B=tensor([1.0])).all()
