"""A small installation for the learner's tests: base, registry, champion, experiences."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch

from learner.live import Did, LiveLearner
from learner.settings import LearnerSettings
from learner.worker import open_learner
from tests.factories import NOW, make_experience
from tests.tiny_model import tiny_base
from tidemill.contracts.events import Sampling
from tidemill.contracts.experience import Experience
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.settings import DatabaseSettings, LoraSettings, PolicySettings, SharedSettings
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.experiences import insert_experiences

WHY = Why(reason="a test", actor="operator")


@dataclass(frozen=True, slots=True)
class World:
    """One installation on disk."""

    shared: SharedSettings
    database: Database
    base: BaseModel

    @property
    def registry(self) -> PolicyRegistry:
        return PolicyRegistry(self.database, model=self.shared.model, tenant=self.shared.tenant)

    def learner(self, **over: object) -> LiveLearner:
        learner = open_learner(self.shared, LearnerSettings(**over), self.database)  # type: ignore[arg-type]
        learner.load()
        return learner

    def champion(self) -> PolicyRecord:
        """Make the base champion."""
        learner = self.learner()
        version = learner.registry.list()[0].version
        learner.registry.promote(version, why=WHY)
        return learner.registry.get(version)

    def experiences(
        self, count: int, *, version: str, seed: int = 0, length: int = 4
    ) -> list[Experience]:
        """Sample completions of a few prompts; reward 1 when the first id is below 130.

        An unknown version samples from the base.
        """
        requests = [
            GenerationRequest(
                request_id=str(index),
                prompt_ids=(1, 4 + index % 3, 20, 21, 2),
                sampling=Sampling(temperature=1.0, max_tokens=length, seed=seed * 10_000 + index),
            )
            for index in range(count)
        ]
        store = SnapshotStore(self.shared.snapshots_path)
        snapshot = store.load(version) if version in store.versions() else None
        generations = generate(load_adapter(self.base, snapshot), self.base, requests)
        return [
            make_experience(
                experience_id=f"{seed:04d}-{index:05d}",
                subject=f"subject-{index}",
                context=f"context-{index % 3}",
                policy_version=version,
                prompt_ids=generation.prompt_ids,
                completion_ids=generation.completion_ids,
                behaviour_logprobs=generation.logprobs,
                reward=float(generation.completion_ids[0] < 130),
            )
            for index, generation in enumerate(generations)
        ]

    def insert(self, experiences: Sequence[Experience]) -> None:
        """Store experiences, one second apart."""
        with self.database.transaction() as session:
            for index, experience in enumerate(experiences):
                insert_experiences(session, [experience], created_at=NOW + timedelta(seconds=index))


def make_world(path: Path, database: Database) -> World:
    """Write a base under `path`; the database has its tables already."""
    torch.set_num_threads(1)
    shared = SharedSettings(
        data=path,
        database=DatabaseSettings(url=database.url.render_as_string(hide_password=False)),
        policy=PolicySettings(device="cpu", lora=LoraSettings(rank=4)),
    )
    tiny_base(shared.base_path)
    return World(shared, database, load_base(shared.base_path, settings=shared.policy))


def run_until_idle(learner: LiveLearner, *, limit: int = 500) -> list[Did]:
    """Take turns until there is nothing to do."""
    done = []
    for _ in range(limit):
        done.append(learner.turn())
        if done[-1] in (Did.WAITED, Did.NO_CHAMPION):
            return done
    raise AssertionError(f"still busy after {limit} turns: {done[-3:]}")
