"""Drawing the next token of each row. Pure: tensors in, tensors out.

Each row has its own temperature, truncation and random number, so a request's tokens do not depend
on its batch mates. Shapes: B row, V vocabulary.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tidemill.policy.logprobs import token_logprobs

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What was drawn."""

    ids_B: Tensor
    logprobs_B: Tensor
    """At the row's temperature, before truncation; float32."""
    kept_mass_B: Tensor
    """Probability mass that the truncation left; 1 without one."""


def counter_uniforms(seeds_B: NDArray[np.uint64], positions_B: NDArray[np.uint64]) -> Tensor:
    """Return one float64 in [0, 1) for each (seed, position): SplitMix64 (Steele et al. 2014).

    A function of its arguments alone: no state, so the order of rows and calls does not matter.
    """
    with np.errstate(over="ignore"):
        stream_B = _mix(seeds_B + _GOLDEN)
        bits_B = _mix(stream_B + (positions_B + np.uint64(1)) * _GOLDEN)
    return torch.from_numpy((bits_B >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def sample_tokens(
    logits_BV: Tensor,
    *,
    temperature_B: Tensor,
    uniform_B: Tensor,
    top_p_B: Tensor | None = None,
    top_k_B: Tensor | None = None,
) -> SampledTokens:
    """Draw by inverse CDF: the first token whose cumulative probability exceeds u * kept mass.

    Truncation as usual: the `top_k` most probable tokens (0 = all), then the smallest set of those
    that holds `top_p` of their mass; None = off for all rows. `top_k` 1 is greedy decoding, with
    the log-prob still that of the untruncated distribution.
    """
    probs_BV = (logits_BV.float() / temperature_B.unsqueeze(-1)).softmax(-1)
    kept_BV = probs_BV
    if top_p_B is not None or top_k_B is not None:
        kept_BV = probs_BV * kept_tokens(probs_BV, top_p_B=top_p_B, top_k_B=top_k_B)
    cumulative_BV = kept_BV.cumsum(-1, dtype=torch.float64)
    mass_B1 = cumulative_BV[:, -1:]
    threshold_B1 = uniform_B.to(mass_B1).unsqueeze(-1) * mass_B1
    ids_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True).squeeze(-1)
    ids_B = torch.minimum(ids_B, _last_kept(kept_BV))
    logprobs_B = token_logprobs(logits_BV, ids_B, temperature=temperature_B).clamp(max=0.0)
    is_whole = kept_BV is probs_BV
    kept_mass_B = torch.ones_like(logprobs_B) if is_whole else mass_B1.squeeze(-1).float()
    return SampledTokens(ids_B, logprobs_B, kept_mass_B.clamp(max=1.0))


def kept_tokens(
    probs_BV: Tensor, *, top_p_B: Tensor | None = None, top_k_B: Tensor | None = None
) -> Tensor:
    """Return a Boolean mask of the tokens that top-k, then top-p leave; never an empty row."""
    sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True, stable=True)
    kept_BV = torch.ones_like(sorted_BV, dtype=torch.bool)
    if top_k_B is not None:
        rank_V = torch.arange(probs_BV.shape[-1], device=probs_BV.device)
        limit_B = torch.where(top_k_B > 0, top_k_B, probs_BV.shape[-1])
        kept_BV = rank_V < limit_B.unsqueeze(-1)
    if top_p_B is not None:
        among_BV = sorted_BV * kept_BV
        before_BV = among_BV.cumsum(-1) - among_BV
        limit_B1 = top_p_B.unsqueeze(-1) * among_BV.sum(-1, keepdim=True)
        kept_BV = kept_BV & ((before_BV < limit_B1) | (top_p_B.unsqueeze(-1) >= 1))
    return torch.zeros_like(kept_BV).scatter(-1, order_BV, kept_BV)


def _last_kept(kept_BV: Tensor) -> Tensor:
    """Return the last index with mass: rounding must not draw a token that was cut off."""
    return kept_BV.shape[-1] - 1 - (kept_BV > 0).flip(-1).byte().argmax(-1)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
    bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
    return bits ^ (bits >> np.uint64(31))
