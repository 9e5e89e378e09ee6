"""One forward of the model over prompts, or over the next token of every running row.

Shapes: B row, P prompt column, L cache column, V vocabulary.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tidemill.policy.engine.cache import SlabCache
from tidemill.policy.logprobs import decoder_of, output_logits


class CachedForward:
    """A model with the keys and values of its running rows."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self._model = model
        self._decoder = decoder_of(model)
        self._device = device
        self._cache = SlabCache()

    def prefill(self, prompts: Sequence[Sequence[int]], *, first_row: int) -> Tensor:
        """Read prompts into the rows from `first_row` on; return logits_BV after each."""
        lengths = [len(prompt) for prompt in prompts]
        width = max(lengths)
        padded = [[*prompt, *[0] * (width - len(prompt))] for prompt in prompts]
        ids_BP = torch.tensor(padded, device=self._device)
        self._cache.begin_prefill(first_row, len(prompts), width)
        # Right padding under a causal mask: no real token sees it, and decoding overwrites it.
        hidden_BPH = self._run(ids_BP, torch.arange(width, device=self._device)[None], None)
        last_B = torch.tensor(lengths, device=self._device) - 1
        rows_B = torch.arange(len(prompts), device=self._device)
        return output_logits(self._model, hidden_BPH[rows_B, last_B])

    def decode(self, ids_B: Tensor, columns_B: Tensor, *, width: int) -> Tensor:
        """Append a token to each row at its column; return logits_BV after it."""
        self._cache.begin_decode(columns_B, width)
        column_L = torch.arange(width, device=self._device)
        mask_B11L = (column_L <= columns_B[:, None])[:, None, None]
        hidden_B1H = self._run(ids_B[:, None], columns_B[:, None], mask_B11L)
        return output_logits(self._model, hidden_B1H[:, 0])

    def move_row(self, source: int, target: int, width: int) -> None:
        """Copy a row's first `width` columns over another row."""
        self._cache.move_row(source, target, width)

    def _run(self, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        hidden: Tensor = self._decoder(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
        ).last_hidden_state
        return hidden
