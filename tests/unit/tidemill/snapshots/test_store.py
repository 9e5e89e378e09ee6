"""The snapshot store: whole or not at all, and nothing but what was written."""

import json
import os
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from tests.tiny_model import load_tiny_base
from tidemill.contracts.ids import PolicyVersion
from tidemill.errors import NonFiniteError, ProbeFailedError, SnapshotCorruptError, SnapshotError
from tidemill.policy.adapters import adapter_state, attach_adapter, load_adapter, load_adapter_state
from tidemill.policy.base_model import BaseModel
from tidemill.settings import LoraSettings
from tidemill.snapshots.manifest import Manifest, Provenance, SnapshotDraft
from tidemill.snapshots.policies import base_version, load_policy
from tidemill.snapshots.probes import check_probes, make_probes
from tidemill.snapshots.store import CONFIG_FILE, MANIFEST_FILE, TENSORS_FILE, SnapshotStore

LORA = LoraSettings(rank=4, alpha=8.0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def policy(base: BaseModel) -> PeftModel:
    model = attach_adapter(base, LORA, seed=1)
    generator = torch.Generator().manual_seed(2)
    state = adapter_state(model)
    noise = {k: 0.2 * torch.randn(v.shape, generator=generator) for k, v in state.items()}
    load_adapter_state(model, noise)
    return model


def make_draft(base: BaseModel, policy: PeftModel, **over: object) -> SnapshotDraft:
    fields: dict[str, object] = {
        "number": 3,
        "step": 20,
        "parent": base_version(base),
        "lora": LORA,
        "base_digest": base.digest,
        "tokenizer_digest": base.tokenizer_digest,
        "probes": make_probes(policy, base),
        "provenance": Provenance(origin="live", num_experiences=64, code_version="0.1.0"),
    }
    return SnapshotDraft(**{**fields, **over})


@pytest.fixture
def written(
    tmp_path: Path, base: BaseModel, policy: PeftModel
) -> tuple[SnapshotStore, Manifest, Path]:
    store = SnapshotStore(tmp_path / "snapshots")
    manifest = store.write(adapter_state(policy), make_draft(base, policy))
    return store, manifest, store.root / manifest.version


Written = tuple[SnapshotStore, Manifest, Path]


def test_a_version_is_read_as_it_was_written(written: Written, policy: PeftModel) -> None:
    store, manifest, folder = written
    snapshot = store.load(manifest.version)
    assert snapshot.manifest == manifest
    assert manifest.version == str(PolicyVersion.of(3, manifest.digest))
    assert all(torch.equal(snapshot.tensors[k], v) for k, v in adapter_state(policy).items())
    assert sorted(os.listdir(folder)) == [CONFIG_FILE, TENSORS_FILE, MANIFEST_FILE]
    assert store.versions() == [manifest.version]
    assert store.verify(manifest.version).num_bytes == sum(
        4 * v.numel() for v in snapshot.tensors.values()
    )


def test_writing_again_changes_nothing(
    written: Written, base: BaseModel, policy: PeftModel
) -> None:
    store, manifest, folder = written
    before = (folder / MANIFEST_FILE).stat().st_mtime_ns
    assert store.write(adapter_state(policy), make_draft(base, policy)) == manifest
    assert (folder / MANIFEST_FILE).stat().st_mtime_ns == before


def test_an_interrupted_write_leaves_no_version(
    written: Written, base: BaseModel, policy: PeftModel
) -> None:
    store, manifest, folder = written
    aside = store.root / f".new-{manifest.version}"
    folder.rename(aside)
    (aside / MANIFEST_FILE).unlink()
    assert store.versions() == []
    with pytest.raises(SnapshotError, match="is not in"):
        store.load(manifest.version)
    assert store.write(adapter_state(policy), make_draft(base, policy)) == manifest
    assert not aside.exists()
    store.verify(manifest.version)


def test_provenance_is_part_of_the_name(
    written: Written, base: BaseModel, policy: PeftModel
) -> None:
    store, manifest, _ = written
    other = store.write(
        adapter_state(policy), make_draft(base, policy, provenance=Provenance(origin="drill"))
    )
    assert other.tensors == manifest.tensors
    assert other.digest != manifest.digest


def test_every_changed_byte_of_the_tensors_is_found(written: Written) -> None:
    store, manifest, folder = written
    file = folder / TENSORS_FILE
    whole = bytearray(file.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    for at in range(header, len(whole), 997):
        changed = whole.copy()
        changed[at] ^= 1
        file.write_bytes(changed)
        with pytest.raises(SnapshotCorruptError, match="digest of"):
            store.load(manifest.version)


@pytest.mark.parametrize("name", [TENSORS_FILE, CONFIG_FILE, MANIFEST_FILE])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "noise"])
def test_damaged_files_are_refused(written: Written, name: str, damage: str) -> None:
    store, manifest, folder = written
    file = folder / name
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes({"empty": b"", "cut": whole[:-9], "noise": b"\xff" * 64}[damage])
    with pytest.raises(SnapshotCorruptError):
        store.load(manifest.version)


def test_a_changed_manifest_is_refused(written: Written) -> None:
    store, manifest, folder = written
    fields = json.loads((folder / MANIFEST_FILE).read_text())
    fields["probes"][0]["logprobs"][0] -= 0.5
    (folder / MANIFEST_FILE).write_text(json.dumps(fields))
    with pytest.raises(SnapshotCorruptError, match="has digest"):
        store.load(manifest.version)


def test_a_version_under_another_name_is_refused(written: Written) -> None:
    store, manifest, folder = written
    name = "v4-" + manifest.digest[:12]
    folder.rename(store.root / name)
    with pytest.raises(SnapshotCorruptError):
        store.load(name)


def test_nan_is_never_written(tmp_path: Path, base: BaseModel, policy: PeftModel) -> None:
    state = adapter_state(policy)
    first = next(iter(state))
    state[first][0, 0] = float("nan")
    store = SnapshotStore(tmp_path)
    with pytest.raises(NonFiniteError, match="NaN"):
        store.write(state, make_draft(base, policy))
    assert store.versions() == []


def test_an_empty_store_has_no_versions(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    assert SnapshotStore(tmp_path).versions() == []
    assert SnapshotStore(tmp_path / "absent").versions() == []


def test_a_disk_that_refuses_is_an_error(
    tmp_path: Path, base: BaseModel, policy: PeftModel
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match="cannot be written"):
        SnapshotStore(tmp_path / "file").write(adapter_state(policy), make_draft(base, policy))


def test_a_loaded_policy_gives_the_promised_log_probs(written: Written, base: BaseModel) -> None:
    store, manifest, _ = written
    for trainable in (False, True):
        model = load_policy(base, store, manifest.version, trainable=trainable)
        assert check_probes(model, manifest) <= 1e-5
    assert load_policy(base, store, base_version(base)) is not None
    with pytest.raises(ValueError, match="base alone"):
        load_policy(base, store, base_version(base), trainable=True)


def test_other_weights_fail_the_probes(written: Written, base: BaseModel) -> None:
    _, manifest, _ = written
    with pytest.raises(ProbeFailedError, match="differ by"):
        check_probes(load_adapter(base, None), manifest)


def test_nan_fails_the_probes(written: Written, base: BaseModel) -> None:
    store, manifest, _ = written
    model = load_policy(base, store, manifest.version, trainable=True)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.fill_(float("nan"))
    with pytest.raises(ProbeFailedError, match="nan"):
        check_probes(model, manifest)
    with pytest.raises(NonFiniteError):
        make_probes(model, base)


def test_probes_beyond_the_vocabulary_fail(
    tmp_path: Path, base: BaseModel, policy: PeftModel
) -> None:
    probe = make_probes(policy, base)[0].model_copy(update={"prompt_ids": (10**6,)})
    manifest = SnapshotStore(tmp_path).write(
        adapter_state(policy), make_draft(base, policy, probes=(probe,))
    )
    with pytest.raises(ProbeFailedError, match="cannot be computed"):
        load_policy(base, SnapshotStore(tmp_path), manifest.version)


def test_a_version_of_another_base_is_refused(written: Written, tmp_path: Path) -> None:
    store, manifest, _ = written
    other = load_tiny_base(tmp_path / "other", seed=9)
    with pytest.raises(SnapshotCorruptError, match="base_digest"):
        load_policy(other, store, manifest.version)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing")
def test_peft_itself_reads_the_folder(written: Written, base: BaseModel) -> None:
    _, manifest, folder = written
    tree = attach_adapter(base, LORA, seed=0).unload()
    model = PeftModel.from_pretrained(tree, folder)
    assert check_probes(model.eval(), manifest) <= 1e-5
