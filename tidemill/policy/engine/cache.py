"""Keys and values of all running rows, each row from column 0 on.

A row's next token goes to the column that is its own length, so rows of unequal length need no
padding and nothing is moved when one joins. Shapes: B row, P prompt column, L cache column,
K key-value head, D head size.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache


class SlabCache(Cache):
    """A cache of fixed rows that a transformers model reads and writes during its forward."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.keys: list[Tensor] = []
        """[rows, columns, K, D] for each layer."""
        self.values: list[Tensor] = []
        self._num_rows = 0
        self._num_columns = 0
        self._first_row = 0
        self._width = 0
        self._flat_index_B: Tensor | None = None

    def begin_prefill(self, first_row: int, num_rows: int, width: int) -> None:
        """Let the next forward write prompts of `width` columns to rows from `first_row` on."""
        self._reserve(first_row + num_rows, width)
        self._first_row, self._width, self._flat_index_B = first_row, width, None

    def begin_decode(self, columns_B: Tensor, width: int) -> None:
        """Let the next forward write one token to each row's column and see `width` columns."""
        self._reserve(columns_B.shape[0], width)
        rows_B = torch.arange(columns_B.shape[0], device=columns_B.device)
        self._flat_index_B = rows_B * self._num_columns + columns_B
        self._width = width

    def move_row(self, source: int, target: int, width: int) -> None:
        """Copy the first `width` columns of a row over another."""
        for slab in (*self.keys, *self.values):
            slab[target, :width] = slab[source, :width]

    def update(  # type: ignore[override]
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values [B, K, P, D]; return those to attend to."""
        while len(self.keys) <= layer_idx:
            shape = (self._num_rows, self._num_columns, keys.shape[1], keys.shape[3])
            self.keys.append(keys.new_zeros(shape))
            self.values.append(values.new_zeros(shape))
        slabs = ((self.keys[layer_idx], keys), (self.values[layer_idx], values))
        if self._flat_index_B is None:
            rows = slice(self._first_row, self._first_row + keys.shape[0])
            for slab, new in slabs:
                slab[rows, : self._width] = new.transpose(1, 2)
            return keys, values
        for slab, new in slabs:
            slab.flatten(0, 1).index_copy_(0, self._flat_index_B, new.squeeze(2))
        seen_keys, seen_values = (slab[: keys.shape[0], : self._width] for slab, _ in slabs)
        return seen_keys.transpose(1, 2), seen_values.transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """Return the columns before the next token (positions are always given explicitly)."""
        return self._width

    def _reserve(self, rows: int, columns: int) -> None:
        """Grow to hold rows and columns, doubling so that growth is rare."""
        if rows <= self._num_rows and columns <= self._num_columns:
            return
        new_rows = self._num_rows if rows <= self._num_rows else max(rows, 2 * self._num_rows)
        wide = self._num_columns
        new_columns = wide if columns <= wide else max(columns, 2 * wide)
        for slabs in (self.keys, self.values):
            for layer, old in enumerate(slabs):
                grown = old.new_zeros(new_rows, new_columns, *old.shape[2:])
                grown[: self._num_rows, :wide] = old
                slabs[layer] = grown
        self._num_rows, self._num_columns = new_rows, new_columns
