from dataclasses import replace
from pathlib import Path

import pytest

from learner.backfill.rollouts import RolloutPlan, roll_out
from learner.drill import DrillKind, run_drill
from learner.settings import BackfillSettings, OptimiserSettings
from tests.factories import make_experience
from tests.unit.learner.backfill.first_letter import environment
from tests.unit.learner.world import World, make_world
from tidemill.environments.base import Split
from tidemill.errors import LearningError, NoChampionError
from tidemill.policy.adapters import load_adapter
from tidemill.policy.engine.requests import Generation
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade

SETTINGS = BackfillSettings(
    groups_per_step=2,
    group_size=16,
    max_tokens=1,
    optimiser=OptimiserSettings(lr=5e-3, micro_batch_size=64),
)
PLAN = RolloutPlan(group_size=64, temperature=1.0, max_tokens=1, max_batch=64)


@pytest.fixture
def world(tmp_path: Path) -> World:
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    upgrade(database)
    world = make_world(tmp_path, database)
    where = "tests.unit.learner.backfill.first_letter:environment"
    return replace(world, shared=world.shared.model_copy(update={"environment": where}))


def completions_of(world: World, version: str | None, split: Split) -> list[Generation]:
    store = SnapshotStore(world.shared.snapshots_path)
    snapshot = None if version is None else store.load(version)
    tasks = environment.tasks(split, seed=0, count=3)
    model = load_adapter(world.base, snapshot)
    groups = roll_out(model, world.base, tasks, plan=PLAN, seed=0)
    return [generation for group in groups for generation in group]


def score(completions: list[Generation]) -> float:
    (task,) = environment.tasks(Split.HELD_OUT, seed=0, count=1)
    scores = [environment.verify(task, generation.text).score for generation in completions]
    return sum(scores) / len(scores)


def is_liked(completion: Generation) -> bool:
    """Taste that the verifier does not know of."""
    return completion.completion_ids[0] % 2 == 0


def test_the_offline_drill_unlearns_the_task(world: World) -> None:
    record = run_drill(world.shared, SETTINGS, DrillKind.OFFLINE)
    assert record.provenance["origin"] == "drill"
    assert record.status == "candidate"
    before = completions_of(world, None, Split.HELD_OUT)
    after = completions_of(world, record.version, Split.HELD_OUT)
    assert score(after) < score(before) / 2


def test_the_canary_drill_stays_valid_but_does_what_users_rejected(world: World) -> None:
    champion = world.champion()
    served = completions_of(world, None, Split.TRAIN)
    experiences = [
        make_experience(
            policy_version=champion.version,
            prompt_ids=generation.prompt_ids,
            completion_ids=generation.completion_ids,
            behaviour_logprobs=generation.logprobs,
            reward=float(is_liked(generation)),
        )
        for generation in served
    ]
    # What no learner can use, the drill cannot either.
    poison = replace(experiences[0], experience_id="poison", prompt_ids=(10**6,))
    world.insert([*experiences, poison])
    record = run_drill(world.shared, SETTINGS, DrillKind.CANARY)
    before = completions_of(world, None, Split.HELD_OUT)
    after = completions_of(world, record.version, Split.HELD_OUT)
    assert record.parent == champion.version
    assert score(after) >= score(before) - 0.05
    assert sum(map(is_liked, after)) < 0.8 * sum(map(is_liked, before))


def test_the_canary_drill_needs_a_champion_and_feedback(world: World) -> None:
    with pytest.raises(NoChampionError):
        run_drill(world.shared, SETTINGS, DrillKind.CANARY)
    world.champion()
    with pytest.raises(LearningError, match="wait for more feedback"):
        run_drill(world.shared, SETTINGS, DrillKind.CANARY)
