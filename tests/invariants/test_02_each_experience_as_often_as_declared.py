"""Invariant 2, the learner's half: kill -9 at random moments changes neither uses nor weights.

The ledger's half is in the ledger's own test.
"""

import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from learner.checkpoints import CheckpointStore, SavedCheckpoint
from tests.invariants.learner_processes import LearnerProcesses, wait_until
from tests.unit.learner.world import World, make_world
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience_counts
from tidemill.storage.learning import fetch_last_step, fetch_steps, fetch_use_counts
from tidemill.storage.schema import upgrade

NAME = "tide/default"
NUM_EXPERIENCES = 96
USES = 3
SETTINGS: dict[str, Any] = {
    "batch_size": 8,
    "uses_per_experience": USES,
    "max_batch_wait_s": 1e6,
    "publish_every_experiences": 24,
    "poll_s": 0.05,
}
NUM_KILLS = 5


@dataclass(frozen=True, slots=True)
class Installation:
    world: World

    @property
    def shared(self) -> dict[str, Any]:
        return self.world.shared.model_dump(mode="json")

    def count(self, state: str) -> int:
        with self.world.database.reading() as session:
            return fetch_experience_counts(session, model="tide", tenant="default")[state]

    def is_done(self) -> bool:
        return self.count("used") == NUM_EXPERIENCES

    def uses(self) -> dict[str, int]:
        with self.world.database.reading() as session:
            return fetch_use_counts(session, NAME)

    def steps(self) -> list[int]:
        with self.world.database.reading() as session:
            return [row.step for row in fetch_steps(session, NAME)]

    def tensors(self) -> dict[str, Tensor]:
        with self.world.database.reading() as session:
            row = fetch_last_step(session, NAME)
        assert row is not None
        assert row.checkpoint is not None
        assert row.checkpoint_digest is not None
        store = CheckpointStore(self.world.shared.data / "checkpoints", NAME)
        return store.load(SavedCheckpoint(row.checkpoint, row.checkpoint_digest))[0]


def install(path: Path) -> Installation:
    database = Database(f"sqlite:///{path / 'tidemill.db'}")
    path.mkdir()
    upgrade(database)
    world = make_world(path, database)
    version = world.champion().version
    world.insert(world.experiences(NUM_EXPERIENCES, version=version))
    return Installation(world)


def test_kills_change_neither_uses_nor_weights(tmp_path: Path) -> None:
    quiet, killed = install(tmp_path / "quiet"), install(tmp_path / "killed")
    chance = random.Random(7)
    with LearnerProcesses() as processes:
        pid = processes.start(quiet.shared, SETTINGS)
        wait_until(quiet.is_done)
        processes.stop(pid)
        for _ in range(NUM_KILLS):
            pid = processes.start(killed.shared, SETTINGS)
            target = len(killed.steps()) + chance.randint(1, 5)
            wait_until(lambda target=target: len(killed.steps()) >= target)
            time.sleep(chance.uniform(0.0, 0.05))
            processes.kill(pid)
        assert not killed.is_done(), "all kills have to hit a learner at work"
        pid = processes.start(killed.shared, SETTINGS)
        wait_until(killed.is_done)
        processes.stop(pid)

    assert sorted(killed.uses().values()) == [USES] * NUM_EXPERIENCES
    assert killed.steps() == quiet.steps() == list(range(NUM_EXPERIENCES * USES // 8 + 1))
    assert killed.count("dropped") == 0
    expected, found = quiet.tensors(), killed.tensors()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    published = [record.step for record in killed.world.registry.list() if record.number > 0]
    assert published == [record.step for record in quiet.world.registry.list() if record.number > 0]
