from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import torch

from learner.advantages import BaselineState, ContextHistory
from learner.checkpoints import CheckpointStore, SavedCheckpoint
from learner.rounds import begin_lineage, begin_round, finish_step, note_published
from learner.settings import BaselineSettings
from learner.state import LearnerState, Round, decode_state, encode_state
from tests.factories import make_experience
from tidemill.errors import SnapshotCorruptError


def make_state() -> LearnerState:
    state = begin_lineage(None, champion="v0-000000000000", step=7, last_transition=3, at=1.5)
    histories = {"a": ContextHistory(1.0, 1 / 3), "b": ContextHistory(0.1 + 0.2, 1e-300)}
    return replace(
        state,
        baseline=BaselineState(MappingProxyType(histories)),
        current_round=Round(("x", "y"), (0.1, -0.1), 2),
        published_versions=("v1-111111111111",),
        metrics={"loss": 0.1},
    )


def test_a_state_keeps_every_bit() -> None:
    state = make_state()
    assert decode_state(encode_state(state)) == state
    calm = replace(state, current_round=None)
    assert decode_state(encode_state(calm)) == calm


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, "tide/a tenant/..")
    tensors = {"weight/a": torch.randn(3, 4), "rng": torch.get_rng_state()}
    found, state = store.load(store.save(tensors, make_state()))
    assert state == make_state()
    assert all(torch.equal(tensors[name], found[name]) for name in tensors)
    assert store.folder.parent == tmp_path


def test_a_damaged_or_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, "tide/default")
    saved = store.save({"a": torch.zeros(2)}, make_state())
    path = store.folder / saved.name
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(SnapshotCorruptError, match="digest"):
        store.load(saved)
    path.unlink()
    with pytest.raises(SnapshotCorruptError, match="cannot be read"):
        store.load(saved)
    path.write_bytes(b"no tensors")
    import hashlib

    odd = SavedCheckpoint(saved.name, hashlib.sha256(b"no tensors").hexdigest())
    with pytest.raises(SnapshotCorruptError, match="cannot be read"):
        store.load(odd)


def test_pruning_leaves_the_newest_and_what_is_newer_still(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, "tide/default")
    state = make_state()
    saved = [
        store.save({"a": torch.full((2,), float(n))}, replace(state, serial=n)) for n in (1, 2, 3)
    ]
    # A crash left half a file, and a rival another file of the same serial.
    (store.folder / f".{saved[0].name}.77").write_bytes(b"half")
    rival = store.save({"a": torch.full((2,), 9.0)}, replace(state, serial=2))
    store.prune(saved[1])
    left = {path.name for path in store.folder.iterdir()}
    assert left == {saved[1].name, saved[2].name}
    assert rival.name not in left


def test_a_new_lineage_keeps_baseline_and_counters() -> None:
    old = make_state()
    new = begin_lineage(old, champion="v5-555555555555", step=40, last_transition=9, at=99.0)
    assert (new.serial, new.step, new.lineage) == (old.serial + 1, 40, old.lineage + 1)
    assert new.baseline == old.baseline
    assert new.published_versions == ()
    assert new.head_version == "v5-555555555555"
    assert new.published_at == old.published_at
    assert not new.has_unpublished_steps


def test_a_round_is_scored_once_and_ends_after_its_uses() -> None:
    state = begin_lineage(None, champion="v0-000000000000", step=0, last_transition=0, at=0.0)
    batch = [make_experience(context="c", reward=reward) for reward in (1.0, 0.0)]
    state = begin_round(state, batch, baseline=BaselineSettings(), is_scaled=False)
    current = state.current_round
    assert current is not None
    # Leave-one-out of two: each other's reward.
    assert current.advantages == (1.0, -1.0)
    assert state.num_unpublished == 2
    state = finish_step(state, current, num_uses=2, metrics={"loss": 1.0})
    assert state.current_round == Round(current.experience_ids, current.advantages, 1)
    assert (state.step, state.serial) == (1, 2)
    state = finish_step(state, state.current_round, num_uses=2, metrics={})
    assert state.current_round is None
    scaled = begin_round(state, batch, baseline=BaselineSettings(), is_scaled=True)
    assert scaled.current_round is not None
    assert scaled.first_experience == state.first_experience


def test_publishing_resets_the_counters() -> None:
    state = replace(make_state(), unpublished={"v1-000000000001": 5}, serial=9)
    after = note_published(state, "v2-222222222222", number=2, step=state.step, at=3.0)
    assert after.head_version == "v2-222222222222"
    assert not after.has_unpublished_steps
    assert (after.num_unpublished, after.published_number, after.published_at) == (0, 2, 3.0)
    earlier = note_published(state, "v2-222222222222", number=2, step=state.step - 1, at=3.0)
    assert earlier.has_unpublished_steps
