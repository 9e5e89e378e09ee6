"""Policies for tests: adapters that change what the base says, and requests to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tidemill.contracts.events import Sampling
from tidemill.policy.adapters import adapter_state, attach_adapter, load_adapter_state
from tidemill.policy.base_model import BaseModel
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.settings import LoraSettings

LORA = LoraSettings(rank=4, alpha=8.0)


@dataclass(frozen=True)
class Weights:
    """An adapter in memory; `load_adapter` takes it."""

    lora: LoraSettings
    tensors: dict[str, Tensor]


def random_weights(base: BaseModel, *, seed: int, lora: LoraSettings = LORA) -> Weights:
    """An adapter with A and B far from zero."""
    generator = torch.Generator().manual_seed(seed)
    shapes = adapter_state(attach_adapter(base, lora, seed=0))
    return Weights(
        lora, {k: 0.2 * torch.randn(v.shape, generator=generator) for k, v in shapes.items()}
    )


def random_policy(base: BaseModel, *, seed: int) -> Any:
    """A trainable policy with such an adapter."""
    model = attach_adapter(base, LORA, seed=0)
    load_adapter_state(model, random_weights(base, seed=seed).tensors)
    return model


def make_requests(
    lengths: Sequence[int], *, temperature: float = 1.0, max_tokens: int = 12, **over: Any
) -> list[GenerationRequest]:
    """Requests with prompts of these lengths, ids and seeds by their place."""
    return [
        GenerationRequest(
            request_id=str(place),
            prompt_ids=tuple(4 + (7 * place + 3 * at) % 250 for at in range(length)),
            sampling=Sampling(
                **{"temperature": temperature, "seed": place, "max_tokens": max_tokens} | over
            ),
            is_streamed=False,
        )
        for place, length in enumerate(lengths)
    ]
