"""Supervised training of a base: answers learned by example, from nothing or from a given model.

From nothing: a tokenizer of its own and a small Llama with random weights.

Deterministic for a number of steps; with a time budget the number of steps follows the machine.
The result is a plain base folder, as any other model's.
"""

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from tidemill.errors import ConfigurationError, NonFiniteError
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.batches import build_token_batch
from tidemill.policy.chat import encode_text, render_prompt
from tidemill.policy.devices import choose_device
from tidemill.policy.fresh_base import (
    BaseOrigin,
    LlamaShape,
    conversation_texts,
    new_llama,
    save_base,
    train_tokenizer,
)
from tidemill.policy.importing import (
    ImportOptions,
    SourceModel,
    check_generation,
    read_source,
)
from tidemill.policy.logprobs import completion_logits
from tidemill.settings import PolicySettings

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]]
Example = tuple[Messages, Tools, str]
"""What was asked, the declared tools, and the answer's text."""

FRESH_RATE = 5e-3
"""High, since the model is tiny and its weights start random."""
PRETRAINED_RATE = 2e-4
"""Low: the model knows language already."""
_POOL_BATCHES = 32
"""Examples are sorted by length within so many batches: little padding, still shuffled."""


class SupervisedDataset(Protocol):
    """What has examples to learn from; an environment may."""

    def supervised_examples(self, seed: int, count: int, /) -> Iterable[Example]:
        """Give `count` examples; equal arguments give equal examples."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisedOptions:
    """How a base is trained. Either `steps` or `seconds` bounds it; both: whichever ends first."""

    seed: int = 0
    steps: int | None = None
    """Optimiser steps; the same number gives the same weights."""
    seconds: float | None = 60.0
    """Wall time of the training loop."""
    num_examples: int = 8192
    batch_size: int = 32
    learning_rate: float | None = None
    """None = by what training starts from: `FRESH_RATE` or `PRETRAINED_RATE`."""
    source: Path | None = None
    """Start from this model (a transformers folder or a GGUF file); None = from nothing."""
    source_options: ImportOptions = field(default_factory=ImportOptions)
    vocabulary: int = 384
    shape: LlamaShape = field(default_factory=LlamaShape)
    """These two of a fresh base."""
    licence: str = "Apache-2.0"
    """Of a fresh base; a given model keeps its own."""

    @property
    def peak_rate(self) -> float:
        """Return the highest learning rate of the schedule."""
        if self.learning_rate is not None:
            return self.learning_rate
        return FRESH_RATE if self.source is None else PRETRAINED_RATE


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far training is."""

    step: int
    fraction: float
    """Of the budget, in [0, 1]."""
    loss: float
    """Mean negative log-prob (nats) of an answer's token, over the last batches."""
    elapsed_s: float


def train_base(
    dataset: SupervisedDataset,
    target: Path,
    *,
    options: SupervisedOptions,
    policy: PolicySettings,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Train a base, write its folder and return the last progress.

    A given model passes the checks of an import before its folder appears.

    Raises:
        ConfigurationError: no budget, no example, one that does not fit the context, or a given
            model that cannot be read or fails a check.
        NonFiniteError: training diverged; nothing is written.
    """
    if options.steps is None and options.seconds is None:
        raise ConfigurationError("a training run needs `steps` or `seconds`; both are None")
    examples = list(dataset.supervised_examples(options.seed, options.num_examples))
    if not examples:
        raise ConfigurationError("the dataset gave no supervised example")
    start = _start(examples, options)
    device = choose_device(policy)
    base = BaseModel(start.model.to(device), start.tokenizer, "", "", target, device)
    pairs = encode_examples(base, examples)
    final = _fit(base, pairs, options, on_progress)
    origin = BaseOrigin(
        licence=start.licence,
        made_by=f"tidemill base train from {options.source.name if options.source else 'nothing'}: "
        f"seed {options.seed}, {final.step} steps, {len(examples)} examples, "
        f"loss {final.loss:.4f}",
    )

    def check(folder: Path) -> None:
        if options.source is not None:
            check_generation(load_base(folder, settings=policy))

    save_base(start.model, start.tokenizer, target, origin=origin, check=check)
    return final


def _start(examples: Sequence[Example], options: SupervisedOptions) -> SourceModel:
    """Return what training begins with: trainable, in float32."""
    if options.source is None:
        tokenizer = train_tokenizer(conversation_texts(examples), vocabulary=options.vocabulary)
        model: Any = new_llama(tokenizer, options.shape, seed=options.seed)
        return SourceModel(model, tokenizer, options.licence)
    found = read_source(options.source, options.source_options)
    # Steps of this size vanish in bfloat16.
    return SourceModel(found.model.float().requires_grad_(True), found.tokenizer, found.licence)


def encode_examples(
    base: BaseModel, examples: Sequence[Example]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return (prompt_ids, completion_ids) of each example, the end token last.

    Raises:
        ConfigurationError: an example is longer than the model's context.
    """
    end = base.tokenizer.eos_token_id
    pairs = [
        (render_prompt(base, messages, tools), (*encode_text(base, answer), end))
        for messages, tools, answer in examples
    ]
    longest = max(len(prompt) + len(completion) for prompt, completion in pairs)
    if longest > base.max_context:
        raise ConfigurationError(
            f"an example has {longest} tokens, the model's context {base.max_context}; shorten it "
            "or train with a longer context"
        )
    return pairs


def _fit(
    base: BaseModel,
    pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    options: SupervisedOptions,
    on_progress: Callable[[Progress], None],
) -> Progress:
    model: nn.Module = base.model.train()
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    started = time.perf_counter()
    loss, fraction = math.nan, 0.0
    batches = batch_order([len(prompt) + len(completion) for prompt, completion in pairs], options)
    for step, indices in enumerate(batches, start=1):
        for group in optimiser.param_groups:
            group["lr"] = options.peak_rate * rate_at(fraction)
        batch = build_token_batch([pairs[i] for i in indices], base.pad_id).to(base.device)
        logits_NV, ids_N = completion_logits(model, batch)
        batch_loss = nn.functional.cross_entropy(logits_NV, ids_N)
        optimiser.zero_grad()
        batch_loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        value = batch_loss.item()
        if not math.isfinite(value):
            raise NonFiniteError(
                f"the loss is {value} at step {step}; lower the learning rate ({options.peak_rate})"
            )
        loss = value if math.isnan(loss) else 0.95 * loss + 0.05 * value
        elapsed = time.perf_counter() - started
        fraction = _spent(step, elapsed, options)
        progress = Progress(step=step, fraction=fraction, loss=loss, elapsed_s=elapsed)
        on_progress(progress)
        if fraction >= 1:
            break
    base.model.eval()
    return progress


def rate_at(fraction: float) -> float:
    """Return the learning rate's factor: a warm-up over 5 %, then a cosine down to 5 %."""
    if fraction < 0.05:
        return 0.1 + 0.9 * fraction / 0.05
    return 0.05 + 0.475 * (1 + math.cos(math.pi * (fraction - 0.05) / 0.95))


def batch_order(lengths: Sequence[int], options: SupervisedOptions) -> Iterator[list[int]]:
    """Yield batches of example indices without end: each epoch shuffled, lengths kept together."""
    order = random.Random(options.seed)  # noqa: S311 (a shuffle, no secret)
    size = options.batch_size
    while True:
        indices = list(range(len(lengths)))
        order.shuffle(indices)
        batches = []
        for start in range(0, len(indices), size * _POOL_BATCHES):
            pool = sorted(indices[start : start + size * _POOL_BATCHES], key=lengths.__getitem__)
            batches += [pool[at : at + size] for at in range(0, len(pool), size)]
        order.shuffle(batches)
        yield from batches


def _spent(step: int, elapsed_s: float, options: SupervisedOptions) -> float:
    by_steps = step / options.steps if options.steps else 0.0
    by_time = elapsed_s / options.seconds if options.seconds else 0.0
    return min(1.0, max(by_steps, by_time))
