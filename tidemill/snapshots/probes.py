"""Probes: do loaded weights compute what their manifest promises, on this replica?

A digest proves the bytes; a probe proves what this machine makes of them (device, precision,
library, base). Probe prompts are random tokens, so a manifest never holds a user's words.
"""

from collections.abc import Sequence

import torch
from torch import nn

from tidemill.contracts.events import Sampling
from tidemill.errors import NonFiniteError, ProbeFailedError
from tidemill.policy.base_model import BaseModel
from tidemill.policy.batches import build_token_batch
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.policy.logprobs import completion_logprobs
from tidemill.snapshots.manifest import Manifest, Probe

_PROMPT_TOKENS = 12
_COMPLETION_TOKENS = 12


def make_probes(
    model: nn.Module,
    base: BaseModel,
    *,
    prompts: Sequence[Sequence[int]] | None = None,
    num_probes: int = 4,
) -> tuple[Probe, ...]:
    """Let the model complete prompts (None = random tokens, always the same) and keep log-probs.

    Raises:
        NonFiniteError: the model gives NaN or infinite log-probs.
    """
    chosen = _random_prompts(base, num_probes) if prompts is None else prompts
    sampling = Sampling(temperature=1.0, max_tokens=_COMPLETION_TOKENS)
    requests = [
        GenerationRequest(
            request_id=str(index),
            prompt_ids=tuple(prompt),
            sampling=sampling.model_copy(update={"seed": index}),
        )
        for index, prompt in enumerate(chosen)
    ]
    generations = generate(model, base, requests)
    if any(not generation.completion_ids for generation in generations):
        raise NonFiniteError("the model gives NaN or infinite log-probs; it cannot be published")
    pairs = [(g.prompt_ids, g.completion_ids) for g in generations]
    return tuple(
        Probe(prompt_ids=prompt, completion_ids=completion, logprobs=tuple(values))
        for (prompt, completion), values in zip(pairs, _score(model, pairs), strict=True)
    )


def check_probes(model: nn.Module, manifest: Manifest) -> float:
    """Return the largest difference (nats) between promised and computed log-probs.

    Raises:
        ProbeFailedError: it exceeds the manifest's tolerance, or is no number.
    """
    pairs = [(probe.prompt_ids, probe.completion_ids) for probe in manifest.probes]
    try:
        scored = _score(model, pairs)
    except (IndexError, RuntimeError) as error:
        raise ProbeFailedError(
            f"{manifest.version}: a probe cannot be computed: {error}"
        ) from error
    promised = torch.tensor([v for probe in manifest.probes for v in probe.logprobs])
    computed = torch.tensor([v for values in scored for v in values])
    difference = float((computed - promised).abs().max())
    # Written so that NaN fails too.
    if not difference <= manifest.tolerance:
        raise ProbeFailedError(
            f"{manifest.version}: log-probs differ by {difference:.2e}, more than "
            f"{manifest.tolerance:.0e}; other base, precision or damaged weights: do not serve it"
        )
    return difference


@torch.inference_mode()
def _score(
    model: nn.Module, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]
) -> list[list[float]]:
    device = next(model.parameters()).device
    batch = build_token_batch(pairs, pad_id=0).to(device)
    temperature_B = torch.ones(len(pairs), device=device)
    logprobs_BT = completion_logprobs(model, batch, temperature_B=temperature_B)
    return [
        row_T[mask_T].tolist()
        for row_T, mask_T in zip(logprobs_BT, batch.completion_mask_BT, strict=True)
    ]


def _random_prompts(base: BaseModel, num_probes: int) -> list[list[int]]:
    special = set(base.tokenizer.all_special_ids)
    plain = [i for i in range(len(base.tokenizer)) if i not in special]
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randint(len(plain), (num_probes, _PROMPT_TOKENS), generator=generator)
    return [[plain[index] for index in row] for row in chosen.tolist()]
