from pathlib import Path

import pytest
import torch

from gating.decisions import Missing
from gating.settings import OfflineSettings
from gating.suite import NO_SUITE, OfflineSuite, SuiteResult
from tests.tiny_model import load_tiny_base, tiny_base
from tidemill.errors import SnapshotCorruptError
from tidemill.policy.adapters import adapter_state, attach_adapter, load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.settings import LoraSettings, PolicySettings, SharedSettings
from tidemill.snapshots.manifest import Provenance, SnapshotDraft
from tidemill.snapshots.policies import base_version
from tidemill.snapshots.probes import make_probes
from tidemill.snapshots.store import TENSORS_FILE, SnapshotStore

SETTINGS = OfflineSettings(num_tasks=12, max_tokens=8, max_batch=8)


def suite(data: Path, environment: str | None = "EchoEnvironment") -> OfflineSuite:
    path = None if environment is None else f"tests.gate_environment:{environment}"
    policy = PolicySettings(device="cpu")
    return OfflineSuite(SharedSettings(data=data, environment=path, policy=policy), SETTINGS)


@pytest.fixture
def base(tmp_path: Path) -> BaseModel:
    return load_tiny_base(tmp_path / "base")


def publish(base: BaseModel, data: Path) -> str:
    """Write version 1: an adapter that changes what the base says."""
    lora = LoraSettings(rank=2, alpha=4.0)
    torch.manual_seed(1)
    tensors = {
        name: torch.randn_like(tensor)
        for name, tensor in adapter_state(attach_adapter(base, lora, seed=0)).items()
    }
    store = SnapshotStore(data / "snapshots")
    draft = SnapshotDraft(
        number=1,
        step=1,
        parent=base_version(base),
        lora=lora,
        base_digest=base.digest,
        tokenizer_digest=base.tokenizer_digest,
        probes=make_probes(load_adapter(base, Adapter(lora, tensors)), base),
        provenance=Provenance(origin="live"),
    )
    return store.write(tensors, draft).version


class Adapter:
    """What `load_adapter` needs."""

    def __init__(self, lora: LoraSettings, tensors: dict[str, torch.Tensor]) -> None:
        self.lora = lora
        self.tensors = tensors


def test_a_version_is_measured_on_held_out_tasks(base: BaseModel, tmp_path: Path) -> None:
    first = suite(tmp_path).measure(base_version(base))
    assert isinstance(first, SuiteResult)
    assert first.num_tasks == 12
    assert 0 <= first.score <= 1
    assert 0 < first.mean_tokens <= 8
    assert first.suite["environment"] == "tests.gate_environment:EchoEnvironment"
    # Equal versions give equal figures: the same tasks, the same randomness.
    assert suite(tmp_path).measure(base_version(base)) == first


def test_an_adapter_is_loaded_verified_and_measured(base: BaseModel, tmp_path: Path) -> None:
    version = publish(base, tmp_path)
    assert isinstance(suite(tmp_path).measure(version), SuiteResult)
    file = tmp_path / "snapshots" / version / TENSORS_FILE
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.chmod(0o644)
    file.write_bytes(damaged)
    with pytest.raises(SnapshotCorruptError):
        suite(tmp_path).measure(version)


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (None, NO_SUITE),
        ("FaultyEnvironment", "KeyError"),
        ("EmptyEnvironment", "no held-out tasks"),
        ("NoSuchEnvironment", "cannot be loaded"),
    ],
)
def test_what_cannot_be_judged_is_missing(
    tmp_path: Path, environment: str | None, reason: str
) -> None:
    base = load_tiny_base(tmp_path / "base")
    found = suite(tmp_path, environment).measure(base_version(base))
    assert isinstance(found, Missing)
    assert reason in found.reason


def test_without_a_base_or_a_snapshot_nothing_is_judged(tmp_path: Path) -> None:
    missing = suite(tmp_path).measure("v1-000000000001")
    assert isinstance(missing, Missing)
    assert "no base" in missing.reason
    tiny_base(tmp_path / "base")
    missing = suite(tmp_path).measure("v1-000000000001")
    assert isinstance(missing, Missing)
    assert "is not in" in missing.reason
