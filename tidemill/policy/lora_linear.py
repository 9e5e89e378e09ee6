"""A linear layer with a frozen, unmerged adapter: what serving runs.

The same numbers as peft's layer, with two matrix products fused and none of its bookkeeping: at a
hidden size of 64 that bookkeeping costs more than the arithmetic.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class LoraLinear(nn.Module):
    """y = x W^T + b + (alpha / r) (x A^T) B^T (Hu et al. 2021), W and b shared with the base."""

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

    def forward(self, x: Tensor) -> Tensor:
        """Apply base and adapter to x[..., in]."""
        flat = x.reshape(-1, x.shape[-1])
        base = functional.linear(flat, self.weight, self.bias)
        low = flat.to(self.lora_A.dtype) @ self.lora_A.T
        wide = base.to(low.dtype)
        out = torch.addmm(wide, low, self.lora_B.T, alpha=self.scaling).to(base.dtype)
        return out.view(*x.shape[:-1], -1)
