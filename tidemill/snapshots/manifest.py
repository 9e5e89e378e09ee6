"""The manifest of a policy version on disk: what it is, what it must compute, how it was made.

Immutable; written last, read first. Its digest covers everything in it but the digest itself, so a
version's name (`v<number>-<first 12 hex of the digest>`) stands for weights, probes and provenance.
"""

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tidemill.contracts.ids import PolicyVersion
from tidemill.settings import LoraSettings

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Part(BaseModel):
    """Strict and frozen: unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TensorEntry(Part):
    """One tensor of the version's safetensors file."""

    dtype: Literal["float32", "bfloat16", "float16"]
    shape: tuple[Annotated[int, Field(ge=1)], ...]
    digest: Sha256
    """`digests.tensor_digest`."""


class Probe(Part):
    """A prompt with a completion, and the log-probs that the right weights give it."""

    prompt_ids: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    completion_ids: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    logprobs: tuple[Finite, ...]
    """At temperature 1, one for each completion token."""

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.logprobs) != len(self.completion_ids):
            raise ValueError(
                f"{len(self.logprobs)} log-probs for {len(self.completion_ids)} completion tokens"
            )
        return self


class Provenance(Part):
    """How a version was made."""

    origin: str = Field(min_length=1, max_length=64)
    """live, backfill, drill or import."""
    learner: str = ""
    """Identity of the learner that made it."""
    num_experiences: int = Field(default=0, ge=0)
    """Experiences trained on since the parent."""
    first_experience: str | None = None
    """Id of the first of them, in the order of training."""
    last_experience: str | None = None
    reward_spec_hash: str | None = None
    code_version: str = ""
    metrics: dict[str, Finite] = Field(default_factory=dict)
    """What the learner measured at its last step."""


class SnapshotDraft(Part):
    """What the writer of a snapshot has to say about it."""

    number: int = Field(ge=1)
    """From the registry; 0 is the base, which has no snapshot."""
    step: int = Field(ge=0)
    """Optimiser steps in its lineage; staleness is counted in these."""
    parent: str | None
    """Version text of the policy that training started from."""
    lora: LoraSettings
    base_digest: Sha256
    tokenizer_digest: Sha256
    probes: tuple[Probe, ...] = Field(min_length=1)
    tolerance: float = Field(default=1e-4, gt=0, le=0.1)
    """Largest difference of a probe's log-prob (nats) that still counts as the same weights."""
    provenance: Provenance


class Manifest(SnapshotDraft):
    """`manifest.json`."""

    schema_version: Literal[1] = 1
    kind: Literal["full"] = "full"
    """The whole adapter; a kind for deltas will come beside it."""
    tensors: dict[str, TensorEntry] = Field(min_length=1)
    config_digest: Sha256
    """SHA-256 of `adapter_config.json`."""
    digest: Sha256
    """`content_digest` of all the rest."""

    @property
    def version(self) -> str:
        """The version text."""
        return str(PolicyVersion.of(self.number, self.digest))

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        width = {"float32": 4, "bfloat16": 2, "float16": 2}
        total = 0
        for entry in self.tensors.values():
            size = width[entry.dtype]
            for length in entry.shape:
                size *= length
            total += size
        return total


def content_digest(fields: dict[str, Any]) -> str:
    """Return SHA-256 (hexadecimal) of a manifest's JSON fields but `digest`, keys sorted."""
    rest = {name: value for name, value in fields.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
