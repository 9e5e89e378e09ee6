"""Experiences as tensors. Shapes: B sequence, T token."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tidemill.contracts.experience import Experience
from tidemill.policy.batches import TokenBatch, align_completion_values, build_token_batch


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """What one forward of an optimiser step needs."""

    tokens: TokenBatch
    behaviour_logprobs_BT: Tensor
    """Natural logs at the sampling temperature, before truncation, as the target's are."""
    temperature_B: Tensor
    advantages_B: Tensor


def build_training_batch(
    experiences: Sequence[Experience],
    advantages: Sequence[float],
    *,
    pad_id: int,
    device: torch.device,
) -> TrainingBatch:
    """Put experiences together; each has tokens and behaviour log-probs."""
    pairs = [(e.prompt_ids, e.completion_ids) for e in experiences]
    tokens = build_token_batch(pairs, pad_id).to(device)
    behaviour = [experience.behaviour_logprobs or () for experience in experiences]
    return TrainingBatch(
        tokens=tokens,
        behaviour_logprobs_BT=align_completion_values(tokens, behaviour),
        temperature_B=torch.tensor(
            [e.temperature for e in experiences], dtype=torch.float32, device=device
        ),
        advantages_B=torch.tensor(advantages, dtype=torch.float32, device=device),
    )
