"""Objectives: what an optimiser step minimises. Pure: tensors in, tensors out.

Every objective returns a loss for each token; the caller sums over tokens and divides by one
denominator for the whole optimiser step, so splitting a batch changes nothing. Shapes: B sequence,
T token; values outside the mask are ignored.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tidemill.policy.importance import (
    MAX_LOG_RATIO,
    importance_ratio,
    kl_k2,
    log_importance_ratio,
    truncated_importance_ratio,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveInputs:
    """Log-probs (nats, at the sampling temperature) of completion tokens, and their advantages."""

    target_logprobs_BT: Tensor
    """Of the policy in training; carries the gradient."""
    behaviour_logprobs_BT: Tensor
    """Of the policy that generated, before truncation."""
    mask_BT: Tensor
    """True on completion tokens."""
    advantages_B: Tensor

    @property
    def log_ratio(self) -> Tensor:
        """Log importance ratio [B, T], 0 outside the mask."""
        log_ratio = log_importance_ratio(self.target_logprobs_BT, self.behaviour_logprobs_BT)
        return torch.where(self.mask_BT, log_ratio, torch.zeros_like(log_ratio))


@dataclass(frozen=True, slots=True)
class ObjectiveOutput:
    """Loss for each token, 0 outside the mask, and how many tokens the bounds touched."""

    loss_BT: Tensor
    bounded_BT: Tensor
    """True where the trust region, a clip or a cap holds the token back."""


def compute_trust_region(
    inputs: ObjectiveInputs,
    *,
    max_probability_difference: float,
    ratio_cap: float,
    log_ratio_weight: float,
) -> ObjectiveOutput:
    """Return -keep * min(r, cap) * A * log pi + weight * (log r)^2, r without gradient.

    keep = 0 where the token's probability has already moved further than
    `max_probability_difference` in the direction of its advantage (arXiv 2602.04879).
    """
    target, behaviour = inputs.target_logprobs_BT, inputs.behaviour_logprobs_BT
    advantages_B1 = inputs.advantages_B.unsqueeze(1)
    log_ratio_BT = inputs.log_ratio
    moved_BT = target.detach().exp() - behaviour.exp()
    limit = max_probability_difference
    outside_BT = ((advantages_B1 > 0) & (moved_BT > limit)) | (
        (advantages_B1 < 0) & (moved_BT < -limit)
    )
    ratio_BT = truncated_importance_ratio(target.detach(), behaviour, cap=ratio_cap)
    push_BT = -(~outside_BT).float() * ratio_BT * advantages_B1 * target
    return _masked(inputs, push_BT + log_ratio_weight * log_ratio_BT.square(), outside_BT)


def compute_ppo_clip(
    inputs: ObjectiveInputs, *, clip_low: float, clip_high: float
) -> ObjectiveOutput:
    """Return max(-r A, -clip(r, 1 - low, 1 + high) A) (Schulman et al. 2017)."""
    ratio_BT = importance_ratio(inputs.target_logprobs_BT, inputs.behaviour_logprobs_BT)
    return _clipped(inputs, ratio_BT, bounds=(clip_low, clip_high))


def compute_cispo(inputs: ObjectiveInputs, *, ratio_cap: float) -> ObjectiveOutput:
    """Return -min(r, cap) A log pi, r without gradient (MiniMax 2025)."""
    target = inputs.target_logprobs_BT
    ratio_BT = importance_ratio(target.detach(), inputs.behaviour_logprobs_BT)
    weight_BT = ratio_BT.clamp(max=ratio_cap)
    loss_BT = -weight_BT * inputs.advantages_B.unsqueeze(1) * target
    return _masked(inputs, loss_BT, ratio_BT > ratio_cap)


def compute_gspo(inputs: ObjectiveInputs, *, clip_low: float, clip_high: float) -> ObjectiveOutput:
    """Return the clipped surrogate on s = exp(mean of log r over the sequence).

    The value of s is shared by the sequence's tokens, the gradient is each token's own
    (Zheng et al. 2025).
    """
    lengths_B = inputs.mask_BT.sum(1).clamp(min=1)
    mean_B1 = (inputs.log_ratio.sum(1) / lengths_B).unsqueeze(1)
    own_BT = inputs.target_logprobs_BT - inputs.target_logprobs_BT.detach()
    log_s_BT = mean_B1.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO) + own_BT
    return _clipped(inputs, log_s_BT.exp(), bounds=(clip_low, clip_high))


def compute_truncated_importance(inputs: ObjectiveInputs, *, ratio_cap: float) -> ObjectiveOutput:
    """Return -min(R, cap) A log pi, R = exp(sum of log r) of the sequence, without gradient."""
    ratio_B1 = sequence_ratios(inputs).unsqueeze(1)
    weight_B1 = ratio_B1.clamp(max=ratio_cap)
    loss_BT = -weight_B1 * inputs.advantages_B.unsqueeze(1) * inputs.target_logprobs_BT
    return _masked(inputs, loss_BT, (ratio_B1 > ratio_cap).expand(loss_BT.shape))


def compute_kl_loss(target_logprobs_BT: Tensor, reference_logprobs_BT: Tensor) -> Tensor:
    """Return (log pi - log pi_ref)^2 / 2 for each token: k2, whose gradient is the KL's."""
    return kl_k2(log_importance_ratio(target_logprobs_BT, reference_logprobs_BT))


def sequence_ratios(inputs: ObjectiveInputs) -> Tensor:
    """Return R_B = exp(sum of log r over the completion), clamped, without gradient."""
    total_B = inputs.log_ratio.detach().sum(1)
    return total_B.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _clipped(
    inputs: ObjectiveInputs, ratio_BT: Tensor, *, bounds: tuple[float, float]
) -> ObjectiveOutput:
    low, high = bounds
    advantages_B1 = inputs.advantages_B.unsqueeze(1)
    free_BT = -ratio_BT * advantages_B1
    clipped_BT = -ratio_BT.clamp(1 - low, 1 + high) * advantages_B1
    return _masked(inputs, torch.maximum(free_BT, clipped_BT), clipped_BT > free_BT)


def _masked(inputs: ObjectiveInputs, loss_BT: Tensor, bounded_BT: Tensor) -> ObjectiveOutput:
    # where, not a product: a NaN on padding must not survive.
    kept_BT = torch.where(inputs.mask_BT, loss_BT, torch.zeros_like(loss_BT))
    return ObjectiveOutput(kept_BT, bounded_BT & inputs.mask_BT)
