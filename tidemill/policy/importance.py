"""Importance ratios and KL estimators. Pure: tensors in, tensors out.

Shapes: the functions are element-wise, so tokens [B, T] and sequences [B] both do. Log-probs are
natural logs at the sampling temperature; `behaviour` generated the data, `target` is evaluated.
"""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before exp, so that no ratio overflows float32 (verl, slime)."""


def log_importance_ratio(target_logprobs: Tensor, behaviour_logprobs: Tensor) -> Tensor:
    """Return log r = log pi_target - log pi_behaviour."""
    return target_logprobs - behaviour_logprobs


def importance_ratio(target_logprobs: Tensor, behaviour_logprobs: Tensor) -> Tensor:
    """Return r = pi_target / pi_behaviour, its log clamped to +-MAX_LOG_RATIO."""
    log_ratio = log_importance_ratio(target_logprobs, behaviour_logprobs)
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def truncated_importance_ratio(
    target_logprobs: Tensor, behaviour_logprobs: Tensor, *, cap: float
) -> Tensor:
    """Return min(r, cap): truncated importance sampling (Ionides 2008)."""
    return importance_ratio(target_logprobs, behaviour_logprobs).clamp(max=cap)


def effective_sample_size(weights: Tensor) -> Tensor:
    """Return (sum w)^2 / sum w^2 over all weights (Kish 1965); 0 without any weight."""
    square_sum = weights.square().sum()
    size = weights.sum().square() / square_sum.clamp(min=torch.finfo(weights.dtype).tiny)
    return torch.where(square_sum > 0, size, torch.zeros_like(size))


def self_normalised_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Return sum(w v) / sum(w): the mean of v under the target, from samples of the behaviour.

    Biased by O(1/n), consistent (Owen 2013, ch. 9.2). 0 without any weight.
    """
    total = weights.sum()
    mean = (weights * values).sum() / total.clamp(min=torch.finfo(weights.dtype).tiny)
    return torch.where(total > 0, mean, torch.zeros_like(mean))


def kl_k1(log_ratio: Tensor) -> Tensor:
    """Return -log r: unbiased for KL(behaviour | target), noisy, signed (Schulman 2020)."""
    return -log_ratio


def kl_k2(log_ratio: Tensor) -> Tensor:
    """Return (log r)^2 / 2: biased upwards, low variance; right as a loss (Schulman 2020)."""
    return log_ratio.square() / 2


def kl_k3(log_ratio: Tensor) -> Tensor:
    """Return r - 1 - log r: unbiased and never negative; right as a report (Schulman 2020)."""
    clamped = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return torch.expm1(clamped) - clamped
