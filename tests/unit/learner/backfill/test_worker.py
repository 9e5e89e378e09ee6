from dataclasses import replace
from pathlib import Path

import pytest
import torch

from learner.backfill.rollouts import Scoring, to_experiences
from learner.backfill.worker import backfill, open_site, run_backfill
from learner.settings import BackfillSettings, OptimiserSettings
from tests.unit.learner.backfill.first_letter import environment
from tests.unit.learner.world import WHY, World, make_world
from tidemill.contracts.events import FinishReason
from tidemill.contracts.experience import Origin, Outcome
from tidemill.environments.base import Split
from tidemill.errors import ConfigurationError
from tidemill.policy.engine.requests import Generation
from tidemill.storage.database import Database
from tidemill.storage.learning import fetch_steps
from tidemill.storage.schema import upgrade

SETTINGS = BackfillSettings(
    steps=24,
    groups_per_step=2,
    group_size=16,
    max_tokens=1,
    optimiser=OptimiserSettings(lr=5e-3, kl_weight=0.0, micro_batch_size=64),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    upgrade(database)
    world = make_world(tmp_path, database)
    where = "tests.unit.learner.backfill.first_letter:environment"
    return replace(world, shared=world.shared.model_copy(update={"environment": where}))


def test_simulated_steps_raise_the_score_and_publish_one_candidate(world: World) -> None:
    scores: list[float] = []
    record = run_backfill(
        world.shared, SETTINGS, tell=lambda _, metrics: scores.append(metrics["score"])
    )
    assert sum(scores[-4:]) > 1.5 * sum(scores[:4])
    assert record.provenance["origin"] == "backfill"
    assert record.parent is not None
    assert record.parent.startswith("v0-")
    assert (record.number, record.step, record.status) == (1, 24, "candidate")
    with world.database.reading() as session:
        steps = fetch_steps(session, "tide/default/backfill")
    assert [row.serial for row in steps] == list(range(1, 25))
    assert {row.origin for row in steps} == {"simulated"}


def test_a_run_can_be_repeated_and_goes_on_from_the_champion(world: World) -> None:
    site = open_site(world.shared, world.database)
    first = backfill(site, SETTINGS, steps=2)
    again = backfill(site, SETTINGS, steps=2)
    load = site.publisher.store.load
    expected, found = load(first.version).tensors, load(again.version).tensors
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    world.registry.promote(first.version, why=WHY)
    third = backfill(site, SETTINGS, steps=1)
    assert (third.parent, third.step) == (first.version, 3)


def test_a_run_ends_early_at_its_target(world: World) -> None:
    numbers: list[int] = []
    easy = SETTINGS.model_copy(update={"target_score": 0.01})
    run_backfill(world.shared, easy, tell=lambda number, _: numbers.append(number))
    assert numbers == [0, 1, 2]


def test_without_an_environment_it_says_so(world: World) -> None:
    shared = world.shared.model_copy(update={"environment": None})
    with pytest.raises(ConfigurationError, match="no environment"):
        run_backfill(shared, SETTINGS)


def test_rollouts_become_experiences_with_the_verifiers_reward() -> None:
    (task,) = environment.tasks(Split.TRAIN, seed=0, count=1)
    texts = ("A", "z", "", "failed")
    generations = [
        Generation(
            request_id=str(number),
            prompt_ids=(1, 2),
            completion_ids=(5,),
            logprobs=(-0.5,),
            kept_mass=None,
            finish_reason=FinishReason.ERROR if text == "failed" else FinishReason.STOP,
            text=text,
        )
        for number, text in enumerate(texts)
    ]
    scoring = Scoring(
        environment=environment,
        reward=lambda verification: verification.score,
        tenant="default",
        model="tide",
        version="v0-000000000000",
        temperature=0.7,
    )
    found = to_experiences(task, generations, scoring)
    assert [experience.reward for experience in found] == [1.0, 0.0, 0.0]
    assert found[2].outcome is Outcome.MALFORMED
    assert {experience.group for experience in found} == {task.task_id}
    assert {experience.origin for experience in found} == {Origin.SIMULATED}
    assert found[0].temperature == 0.7
