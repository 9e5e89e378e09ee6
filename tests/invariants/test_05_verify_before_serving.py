"""Invariant 5: a version is served only after its digest and its probes hold on that replica.

The verifying half: whatever differs, in the folder or on the machine, `load_policy` gives no model.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.policies import LORA, random_policy
from tests.tiny_model import load_tiny_base
from tidemill.errors import ProbeFailedError, SnapshotCorruptError, SnapshotError
from tidemill.policy.adapters import adapter_state
from tidemill.policy.base_model import BaseModel
from tidemill.snapshots.manifest import Manifest, Provenance, SnapshotDraft, content_digest
from tidemill.snapshots.policies import load_policy
from tidemill.snapshots.probes import make_probes
from tidemill.snapshots.store import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE, SnapshotStore


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


def publish(base: BaseModel, root: Path, *, seed: int, probes_of: int | None = None) -> Manifest:
    """Write a version; its probes may be those of other weights."""
    policy = random_policy(base, seed=seed)
    prober = policy if probes_of is None else random_policy(base, seed=probes_of)
    draft = SnapshotDraft(
        number=1,
        step=1,
        parent=None,
        lora=LORA,
        base_digest=base.digest,
        tokenizer_digest=base.tokenizer_digest,
        probes=make_probes(prober, base),
        provenance=Provenance(origin="live"),
    )
    return SnapshotStore(root).write(adapter_state(policy), draft)


def change_a_weight(folder: Path) -> None:
    tensors = load_file(folder / TENSORS_FILE)
    next(iter(tensors.values())).view(-1)[0] += 1e-6
    save_file(tensors, folder / TENSORS_FILE)


def change_a_type(folder: Path) -> None:
    tensors = load_file(folder / TENSORS_FILE)
    save_file({k: v.double() for k, v in tensors.items()}, folder / TENSORS_FILE)


def change_a_shape(folder: Path) -> None:
    tensors = load_file(folder / TENSORS_FILE)
    save_file({k: v.T.contiguous() for k, v in tensors.items()}, folder / TENSORS_FILE)


def add_a_tensor(folder: Path) -> None:
    tensors = load_file(folder / TENSORS_FILE)
    save_file({**tensors, "extra": torch.zeros(1)}, folder / TENSORS_FILE)


def swell(folder: Path) -> None:
    with (folder / TENSORS_FILE).open("ab") as file:
        file.truncate(2**30)


def change_the_rank(folder: Path) -> None:
    config = json.loads((folder / CONFIG_FILE).read_text())
    (folder / CONFIG_FILE).write_text(json.dumps(config | {"r": 64}))


def edit_manifest(**changes: object) -> Callable[[Path], None]:
    """A manifest edited together with its own digest: the version's name gives it away."""

    def change_the_manifest(folder: Path) -> None:
        fields = json.loads((folder / MANIFEST_FILE).read_text()) | changes
        fields["digest"] = content_digest(fields)
        (folder / MANIFEST_FILE).write_text(json.dumps(fields))

    return change_the_manifest


DAMAGES = [
    change_a_weight,
    change_a_type,
    change_a_shape,
    add_a_tensor,
    swell,
    change_the_rank,
    edit_manifest(step=99),
    edit_manifest(tolerance=0.1),
    edit_manifest(kind="delta"),
    edit_manifest(surprise=1),
    edit_manifest(probes=[]),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_version_gives_no_model(
    tmp_path: Path, base: BaseModel, damage: Callable[[Path], None]
) -> None:
    version = publish(base, tmp_path, seed=1).version
    store = SnapshotStore(tmp_path)
    assert load_policy(base, store, version) is not None
    damage(tmp_path / version)
    with pytest.raises(SnapshotCorruptError):
        load_policy(base, store, version)


def test_weights_that_compute_something_else_give_no_model(tmp_path: Path, base: BaseModel) -> None:
    version = publish(base, tmp_path, seed=1, probes_of=2).version
    SnapshotStore(tmp_path).verify(version)
    with pytest.raises(ProbeFailedError, match="do not serve"):
        load_policy(base, SnapshotStore(tmp_path), version)


def test_another_base_gives_no_model(tmp_path: Path, base: BaseModel) -> None:
    version = publish(base, tmp_path / "snapshots", seed=1).version
    other = load_tiny_base(tmp_path / "other", seed=4)
    with pytest.raises(SnapshotCorruptError, match="point policy"):
        load_policy(other, SnapshotStore(tmp_path / "snapshots"), version)


def test_a_missing_version_gives_no_model(tmp_path: Path, base: BaseModel) -> None:
    version = publish(base, tmp_path, seed=1).version
    shutil.rmtree(tmp_path / version)
    for name in (version, "v0-000000000000", "latest", "../base"):
        with pytest.raises(SnapshotError):
            load_policy(base, SnapshotStore(tmp_path), name)
