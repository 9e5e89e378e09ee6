from collections import Counter
from pathlib import Path

import pytest

from learner.live import Did
from tests.unit.learner.world import World, make_world, run_until_idle
from tidemill.storage.database import Database
from tidemill.storage.learning import fetch_steps, fetch_use_counts


@pytest.fixture
def world(tmp_path: Path, any_database: Database) -> World:
    return make_world(tmp_path, any_database)


def test_without_a_champion_it_waits(world: World) -> None:
    assert world.learner().turn() is Did.NO_CHAMPION


def test_each_experience_is_used_exactly_as_often_as_declared(world: World) -> None:
    version = world.champion().version
    world.insert(world.experiences(20, version=version))
    learner = world.learner(batch_size=8, uses_per_experience=3, max_batch_wait_s=1e9)
    did = run_until_idle(learner)
    assert Counter(did) == {Did.RESET: 1, Did.STEPPED: 6, Did.WAITED: 1}
    with world.database.reading() as session:
        counts = fetch_use_counts(session, learner.name)
        steps = fetch_steps(session, learner.name)
    assert sorted(counts.values()) == [3] * 16
    assert [row.step for row in steps] == list(range(7))
