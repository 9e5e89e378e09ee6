"""A linear layer with a frozen, unmerged adapter: what serving runs.

The same numbers as peft's layer with none of its bookkeeping: at a hidden size of 64 that costs
more than the arithmetic.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LoraLinear(nn.Module):
    """y = x W^T + b + (alpha / r) (x A^T) B^T (Hu et al. 2021), W and b shared with the base.

    Made where it runs: it is not moved between devices.
    """

    lora_A: Tensor
    lora_B: Tensor

    def __init__(self, linear: nn.Linear, rank: int, scaling: float) -> None:
        super().__init__()
        self.weight = linear.weight
        self.bias = linear.bias
        self.scaling = scaling
        like = linear.weight
        # float32 at least, as peft holds adapters: a small update is lost in bfloat16.
        dtype = torch.promote_types(like.dtype, torch.float32)
        self.register_buffer("lora_A", like.new_zeros(rank, linear.in_features, dtype=dtype))
        self.register_buffer("lora_B", like.new_zeros(linear.out_features, rank, dtype=dtype))

        # A module finds its parameters and buffers slowly; this is read in every step.
        self._tensors = (self.weight, self.bias, self.lora_A, self.lora_B)

    def forward(self, x: Tensor) -> Tensor:
        """Apply base and adapter to x[..., in]."""
        weight, bias, down, up = self._tensors
        base = functional.linear(x, weight, bias)
        if x.dtype is down.dtype:
            update = functional.linear(functional.linear(x, down), up)
            return torch.add(base, update, alpha=self.scaling)
        update = functional.linear(functional.linear(x.to(down.dtype), down), up)
        return torch.add(base, update, alpha=self.scaling).to(base.dtype)
