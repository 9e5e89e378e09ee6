"""Token sequences of unequal length as one right-padded batch. Pure.

Shapes: B sequence, T token. Causal attention never looks right, so real tokens do not see padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Prompts with their completions, right-padded."""

    input_ids_BT: Tensor
    """Prompt, completion, padding."""
    attention_mask_BT: Tensor
    """1 on prompt and completion, 0 on padding."""
    completion_mask_BT: Tensor
    """True on the completion's tokens: those with a log-prob."""

    @property
    def num_sequences(self) -> int:
        """B."""
        return self.input_ids_BT.shape[0]

    @property
    def num_completion_tokens(self) -> int:
        """How many tokens have a log-prob."""
        return int(self.completion_mask_BT.sum())

    def to(self, device: torch.device | str) -> "TokenBatch":
        """Return the batch on a device."""
        return TokenBatch(
            self.input_ids_BT.to(device),
            self.attention_mask_BT.to(device),
            self.completion_mask_BT.to(device),
        )


def build_token_batch(
    sequences: Sequence[tuple[Sequence[int], Sequence[int]]], pad_id: int
) -> TokenBatch:
    """Put (prompt_ids, completion_ids) pairs together.

    Raises:
        ValueError: no sequence, or an empty prompt: its first token would have no log-prob.
    """
    if not sequences or any(len(prompt) == 0 for prompt, _ in sequences):
        raise ValueError("a token batch needs at least one sequence, and a prompt in each")
    width = max(len(prompt) + len(completion) for prompt, completion in sequences)
    input_ids_BT = torch.full((len(sequences), width), pad_id, dtype=torch.long)
    lengths = torch.tensor([[len(prompt), len(completion)] for prompt, completion in sequences])
    for row, (prompt, completion) in enumerate(sequences):
        ids = torch.tensor([*prompt, *completion], dtype=torch.long)
        input_ids_BT[row, : len(ids)] = ids
    column_T = torch.arange(width)
    end_B1 = lengths.sum(dim=1, keepdim=True)
    is_token_BT = column_T < end_B1
    return TokenBatch(
        input_ids_BT=input_ids_BT,
        attention_mask_BT=is_token_BT.long(),
        completion_mask_BT=is_token_BT & (column_T >= lengths[:, :1]),
    )


def align_completion_values(batch: TokenBatch, values: Sequence[Sequence[float]]) -> Tensor:
    """Return values_BT with each row's values at its completion's tokens, 0 elsewhere.

    Raises:
        ValueError: the number of values differs from the number of completion tokens.
    """
    counts = batch.completion_mask_BT.sum(dim=1).tolist()
    if counts != [len(row) for row in values]:
        raise ValueError(f"{[len(row) for row in values]} values for completions of {counts}")
    flat = torch.tensor([value for row in values for value in row], dtype=torch.float32)
    aligned_BT = torch.zeros(batch.input_ids_BT.shape, device=batch.input_ids_BT.device)
    aligned_BT[batch.completion_mask_BT] = flat.to(aligned_BT.device)
    return aligned_BT
