"""Somebody's own model as the base: read without running anything of it, checked, written anew.

A source is a transformers folder (safetensors, tokenizer, chat template) or one GGUF file. Nothing
is imported that this machine cannot generate with, or score as it generated.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from tidemill.contracts.events import Sampling
from tidemill.errors import ConfigurationError, ContractError
from tidemill.policy.base_model import BaseModel, load_base, load_model, load_tokenizer
from tidemill.policy.batches import align_completion_values, build_token_batch
from tidemill.policy.chat import render_prompt
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.policy.fresh_base import BaseOrigin, save_base
from tidemill.policy.gguf import load_gguf
from tidemill.policy.logprobs import completion_logprobs
from tidemill.settings import PolicySettings

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""Largest difference (nats) between a log-prob at generation and at scoring."""
_LICENCE_FIELD = re.compile(r"^license:\s*([^\s#]+)", re.MULTILINE)
_SAMPLE_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Does nothing.",
        "parameters": {"type": "object", "properties": {"value": {"type": "integer"}}},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the source does not say itself."""

    licence: str | None = None
    """SPDX name; None = read from the folder's README."""
    chat_template: str | None = None
    """Jinja text instead of the tokenizer's own."""


@dataclass(frozen=True, slots=True)
class SourceModel:
    """A model as its maker gave it away."""

    model: Any
    tokenizer: Any
    licence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseReport:
    """What the checks of a base found."""

    num_parameters: int
    vocabulary: int
    max_context: int
    max_difference: float
    """Largest difference of a log-prob (nats) between generation and scoring."""
    template_shows_tools: bool
    """Whether declared tools change the prompt; without it the model never sees them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A base that passed."""

    record: Mapping[str, Any]
    report: BaseReport


def import_base(
    source: Path, target: Path, *, options: ImportOptions, policy: PolicySettings
) -> Imported:
    """Check a model and write it as the base; the target appears only when every check passed.

    Raises:
        ConfigurationError: the source is no such model, has no licence or fails a check.
    """
    found = read_source(source, options)
    reports: list[BaseReport] = []

    def check(folder: Path) -> None:
        reports.append(check_generation(load_base(folder, settings=policy)))

    origin = BaseOrigin(licence=found.licence, made_by=f"import of {source.name}")
    record = save_base(found.model, found.tokenizer, target, origin=origin, check=check)
    return Imported(record=record, report=reports[0])


def read_source(source: Path, options: ImportOptions) -> SourceModel:
    """Read a transformers folder or a GGUF file; nothing is checked or written yet.

    Raises:
        ConfigurationError: the source is no such model or has no licence.
    """
    licence = options.licence or read_licence(source)
    model, tokenizer = _read(source)
    if options.chat_template is not None:
        tokenizer.chat_template = options.chat_template
    return SourceModel(model, tokenizer, licence)


def check_generation(base: BaseModel) -> BaseReport:
    """Generate with a base and score what it generated.

    Raises:
        ConfigurationError: it cannot be generated with, has no end token or chat template, or the
            log-probs of generating and scoring differ.
    """
    if not base.end_ids:
        raise ConfigurationError(
            f"{base.path} names no end token; set eos_token in tokenizer_config.json"
        )
    question = {"role": "user", "content": "Say something short."}
    try:
        plain = render_prompt(base, [question])
        with_tools = render_prompt(base, [question], [_SAMPLE_TOOL])
    except ContractError as error:
        raise ConfigurationError(f"{base.path}: {error}") from error
    if not 0 < len(plain) < base.max_context:
        raise ConfigurationError(
            f"the chat template makes {len(plain)} tokens of one short message; the model takes "
            f"1 to {base.max_context - 1}"
        )
    difference = _identity_difference(base, plain)
    limit = TOLERANCE.get(base.model.dtype, 0.1)
    # Written so that NaN fails too.
    if not difference <= limit:
        raise ConfigurationError(
            f"{base.path}: log-probs of generating and scoring differ by {difference:.1e} nats, "
            f"more than {limit:.0e}; this architecture does not work with the built-in engine"
        )
    return BaseReport(
        num_parameters=sum(parameter.numel() for parameter in base.model.parameters()),
        vocabulary=base.vocabulary,
        max_context=base.max_context,
        max_difference=difference,
        template_shows_tools=plain != with_tools,
    )


def read_licence(source: Path) -> str:
    """Return the licence that a model folder's README declares.

    Raises:
        ConfigurationError: it declares none.
    """
    readme = (source if source.is_dir() else source.parent) / "README.md"
    found = None
    if readme.is_file():
        found = _LICENCE_FIELD.search(readme.read_text(errors="replace")[:65_536])
    if found is None:
        raise ConfigurationError(f"{source} declares no licence; name it with --licence")
    return found[1]


def _read(source: Path) -> tuple[Any, Any]:
    if source.is_file() and source.suffix == ".gguf":
        return load_gguf(source)
    if not (source / "config.json").is_file():
        raise ConfigurationError(
            f"{source} is neither a .gguf file nor a folder with config.json, safetensors and "
            "tokenizer"
        )
    if not any(source.glob("*.safetensors")):
        raise ConfigurationError(
            f"{source} holds no .safetensors file; pickled weights are never read, convert them"
        )
    try:
        tokenizer = load_tokenizer(source)
        return load_model(source, device=torch.device("cpu"), dtype="auto"), tokenizer
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{source} cannot be loaded: {first}") from error


def _identity_difference(base: BaseModel, prompt: tuple[int, ...]) -> float:
    sampling = Sampling(temperature=1.0, max_tokens=12)
    settings = [(temperature, seed) for temperature in (0.7, 1.0) for seed in range(4)]
    requests = [
        GenerationRequest(
            request_id=str(index),
            prompt_ids=prompt[: max(1, len(prompt) - seed)],
            sampling=sampling.model_copy(update={"temperature": temperature, "seed": seed}),
        )
        for index, (temperature, seed) in enumerate(settings)
    ]
    try:
        generations = generate(base.model, base, requests)
    except (RuntimeError, TypeError, AttributeError, IndexError) as error:
        raise ConfigurationError(f"{base.path} cannot be generated with: {error}") from error
    pairs = [(g.prompt_ids, g.completion_ids) for g in generations]
    if not all(completion for _, completion in pairs):
        raise ConfigurationError(f"{base.path} gives NaN or infinite log-probs")
    batch = build_token_batch(pairs, base.pad_id).to(base.device)
    generated_BT = align_completion_values(batch, [g.logprobs for g in generations])
    temperature_B = torch.tensor([t for t, _ in settings], device=base.device)
    with torch.inference_mode():
        scored_BT = completion_logprobs(base.model, batch, temperature_B=temperature_B)
    return float((scored_BT - generated_BT).abs().max())
