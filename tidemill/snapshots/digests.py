"""Digests of tensors. Pure.

A tensor's digest covers type, shape and raw bytes, so -0.0 and 0.0 differ, and so do two NaNs.
"""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def tensor_digest(tensor: Tensor) -> str:
    """Return SHA-256 (hexadecimal) of `dtype|shape|` and the little-endian bytes in row order."""
    plain = tensor.detach().cpu().contiguous()
    kind = str(plain.dtype).removeprefix("torch.")
    shape = ",".join(str(size) for size in plain.shape)
    digest = hashlib.sha256(f"{kind}|{shape}|".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def whole_digest(digests: Mapping[str, str]) -> str:
    """Return SHA-256 (hexadecimal) over (name, digest) pairs, sorted by name."""
    whole = hashlib.sha256()
    for name in sorted(digests):
        whole.update(f"{len(name)}:{name}={digests[name]}\n".encode())
    return whole.hexdigest()
