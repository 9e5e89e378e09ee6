"""Sampling parameters of the running rows as tensors, built once for each set of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tidemill.policy.engine.rows import Row
from tidemill.policy.sampling import counter_uniforms, sample_tokens


@dataclass(frozen=True, slots=True)
class Drawn:
    """One token for each row, as Python values."""

    ids: list[int]
    logprobs: list[float]
    kept_mass: list[float]


class RowSampler:
    """Draws the next token of a fixed set of rows, again and again."""

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        sampling = [row.request.sampling for row in rows]
        self.temperature_B = torch.tensor([s.temperature for s in sampling], device=device)
        self._top_p_B = None
        self._top_k_B = None
        if any(s.top_p < 1 for s in sampling):
            self._top_p_B = torch.tensor([s.top_p for s in sampling], device=device)
        if any(s.top_k > 0 for s in sampling):
            self._top_k_B = torch.tensor([s.top_k for s in sampling], device=device)
        self._seeds_B = np.array([row.seed for row in rows], dtype=np.uint64)
        self._positions_B = np.array([len(row.completion_ids) for row in rows], dtype=np.uint64)
        last = [row.completion_ids[-1] if row.completion_ids else 0 for row in rows]
        self.last_ids_B = torch.tensor(last, dtype=torch.long, device=device)
        """The token that the next forward feeds."""
        columns = [max(row.num_columns - 1, 0) for row in rows]
        self.columns_B = torch.tensor(columns, dtype=torch.long, device=device)
        """The cache column that it goes to."""

    def draw(self, logits_BV: Tensor) -> Drawn:
        """Draw one token for each row and move on by one position."""
        uniform_B = counter_uniforms(self._seeds_B, self._positions_B).to(logits_BV.device)
        sampled = sample_tokens(
            logits_BV,
            temperature_B=self.temperature_B,
            uniform_B=uniform_B,
            top_p_B=self._top_p_B,
            top_k_B=self._top_k_B,
        )
        self._positions_B = self._positions_B + np.uint64(1)
        self.last_ids_B = sampled.ids_B
        self.columns_B = self.columns_B + 1
        return Drawn(
            sampled.ids_B.tolist(), sampled.logprobs_B.tolist(), sampled.kept_mass_B.tolist()
        )
