"""The manifest: strict, and its digest covers all of it."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from tidemill.settings import LoraSettings
from tidemill.snapshots.manifest import (
    Manifest,
    Probe,
    Provenance,
    SnapshotDraft,
    TensorEntry,
    content_digest,
)

SHA = "ab" * 32


def make_manifest(**over: Any) -> Manifest:
    fields: dict[str, Any] = {
        "number": 4,
        "step": 12,
        "parent": "v0-" + "0" * 12,
        "lora": LoraSettings(),
        "base_digest": SHA,
        "tokenizer_digest": SHA,
        "probes": (Probe(prompt_ids=(1,), completion_ids=(2, 3), logprobs=(-0.5, -1.5)),),
        "provenance": Provenance(origin="live", metrics={"learner/reward/mean": 0.5}),
        "tensors": {
            "a": TensorEntry(dtype="float32", shape=(2, 3), digest=SHA),
            "b": TensorEntry(dtype="bfloat16", shape=(5,), digest=SHA),
        },
        "config_digest": SHA,
        "digest": SHA,
    }
    return Manifest(**{**fields, **over})


def test_a_manifest_survives_json() -> None:
    manifest = make_manifest()
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert manifest.version == "v4-" + SHA[:12]
    assert manifest.num_bytes == 4 * 6 + 2 * 5


def test_the_digest_covers_everything_but_itself() -> None:
    fields = make_manifest().model_dump(mode="json")
    digest = content_digest(fields)
    assert content_digest(json.loads(json.dumps(fields))) == digest
    assert content_digest(fields | {"digest": "other"}) == digest
    for name in fields.keys() - {"digest"}:
        assert content_digest(fields | {name: "changed"}) != digest


@pytest.mark.parametrize(
    "over",
    [
        {"surprise": 1},
        {"digest": "xyz"},
        {"number": 0},
        {"step": -1},
        {"kind": "delta"},
        {"schema_version": 2},
        {"probes": ()},
        {"tensors": {}},
        {"tolerance": 5.0},
    ],
)
def test_a_manifest_is_strict(over: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        make_manifest(**over)


def test_a_probe_has_a_finite_log_prob_for_each_token() -> None:
    for logprobs in ((-1.0,), (-1.0, math.nan)):
        with pytest.raises(ValidationError):
            Probe(prompt_ids=(1,), completion_ids=(2, 3), logprobs=logprobs)
    assert issubclass(Manifest, SnapshotDraft)
