from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.checkpoints import CheckpointStore, SavedCheckpoint
from learner.live import Did, LiveLearner
from learner.state import LearnerState
from tests.unit.learner.world import WHY, World, make_world, run_until_idle
from tidemill.errors import FencedError, SnapshotCorruptError, StorageError
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.storage.database import Database
from tidemill.storage.learning import (
    drop_experiences,
    fetch_drop_counts,
    fetch_steps,
    fetch_use_counts,
)

QUIET = {"batch_size": 4, "max_batch_wait_s": 1e9, "uses_per_experience": 2}
"""No smaller batch, no publishing, however slow the machine is."""


@pytest.fixture
def world(tmp_path: Path, database: Database) -> World:
    return make_world(tmp_path, database)


@pytest.fixture
def champion(world: World) -> PolicyRecord:
    return world.champion()


def uses(world: World) -> dict[str, int]:
    with world.database.reading() as session:
        return fetch_use_counts(session, "tide/default")


def drops(world: World) -> dict[str, int]:
    with world.database.reading() as session:
        return fetch_drop_counts(session, model="tide", tenant="default")


def state_of(learner: LiveLearner) -> LearnerState:
    assert learner.state is not None
    return learner.state


def test_without_a_champion_it_waits(world: World) -> None:
    assert world.learner().turn() is Did.NO_CHAMPION


def test_each_experience_is_used_exactly_as_often_as_declared(
    tmp_path: Path, any_database: Database
) -> None:
    world = make_world(tmp_path, any_database)
    version = world.champion().version
    world.insert(world.experiences(20, version=version))
    learner = world.learner(batch_size=8, uses_per_experience=3, max_batch_wait_s=1e9)
    did = run_until_idle(learner)
    assert Counter(did) == {Did.RESET: 1, Did.STEPPED: 6, Did.WAITED: 1}
    assert sorted(uses(world).values()) == [3] * 16
    with world.database.reading() as session:
        steps = fetch_steps(session, learner.name)
    assert [row.step for row in steps] == list(range(7))
    assert [row.origin for row in steps] == ["reset", *["live"] * 6]
    # The first step is on-policy: the learner computes the log-probs that were stored.
    assert steps[1].metrics["kl_behaviour"] == pytest.approx(0, abs=1e-8)


def test_a_batch_that_waited_too_long_may_be_smaller(world: World, champion: PolicyRecord) -> None:
    world.insert(world.experiences(5, version=champion.version))
    late = {"batch_size": 8, "min_batch_size": 4, "max_batch_wait_s": 0.0}
    did = run_until_idle(world.learner(uses_per_experience=1, **late))
    assert Counter(did)[Did.STEPPED] == 1
    assert len(uses(world)) == 5


class LosingStore(CheckpointStore):
    """Dies right after a checkpoint is durable, before SQL knows of it."""

    def save(self, tensors: dict[str, torch.Tensor], state: LearnerState) -> SavedCheckpoint:
        super().save(tensors, state)
        raise KeyboardInterrupt


def test_a_crash_between_checkpoint_and_row_repeats_the_step_with_equal_bits(
    world: World, champion: PolicyRecord
) -> None:
    world.insert(world.experiences(4, version=champion.version))
    learner = world.learner(**QUIET)
    assert [learner.turn(), learner.turn()] == [Did.RESET, Did.STEPPED]
    learner.checkpoints = LosingStore(learner.checkpoints.folder.parent, learner.name)
    with pytest.raises(KeyboardInterrupt):
        learner.turn()
    lost = learner._trainer
    assert lost is not None
    assert set(uses(world).values()) == {1}

    again = world.learner(**QUIET)
    assert state_of(again).current_round is not None
    assert again.turn() is Did.STEPPED
    assert set(uses(world).values()) == {2}
    assert again._trainer is not None
    expected, found = lost.tensors(), again._trainer.tensors()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_second_learner_of_the_same_name_is_fenced(world: World, champion: PolicyRecord) -> None:
    world.insert(world.experiences(8, version=champion.version))
    first = world.learner(**QUIET)
    first.turn()
    second = world.learner(**QUIET)
    first.turn()
    with pytest.raises(StorageError):
        second.turn()
    second.load()
    assert second.turn() is Did.STEPPED
    assert set(uses(world).values()) == {2}


def test_an_experience_erased_in_its_round_is_fenced_then_left_out(
    world: World, champion: PolicyRecord
) -> None:
    experiences = world.experiences(4, version=champion.version)
    world.insert(experiences)
    learner = world.learner(**QUIET)
    learner.turn()
    learner.turn()
    gone = experiences[0].experience_id
    with world.database.transaction() as session:
        drop_experiences(session, {gone: "erased"}, tenant="default")
    assert learner.turn() is Did.STEPPED
    assert uses(world) == {
        e.experience_id: 1 if e.experience_id == gone else 2 for e in experiences
    }


def test_what_changes_after_it_was_read_undoes_the_step(
    world: World, champion: PolicyRecord
) -> None:
    experiences = world.experiences(4, version=champion.version)
    world.insert(experiences)
    learner = world.learner(**QUIET)
    learner.turn()

    class Meddler(CheckpointStore):
        def save(self, tensors: dict[str, torch.Tensor], state: LearnerState) -> SavedCheckpoint:
            with world.database.transaction() as session:
                drop_experiences(
                    session, {experiences[1].experience_id: "erased"}, tenant="default"
                )
            return super().save(tensors, state)

    learner.checkpoints = Meddler(learner.checkpoints.folder.parent, learner.name)
    with pytest.raises(FencedError, match="1 of 4"):
        learner.turn()
    assert uses(world) == {}


@pytest.fixture
def idle(world: World, champion: PolicyRecord) -> LiveLearner:
    """A learner that has made four steps on the champion's data."""
    world.insert(world.experiences(8, version=champion.version))
    learner = world.learner(**QUIET, publish_every_s=1e9)
    run_until_idle(learner)
    assert state_of(learner).step == 4
    return learner


def publish(learner: LiveLearner) -> str:
    learner.settings = learner.settings.model_copy(update={"publish_every_s": 1e-9})
    assert learner.turn() is Did.PUBLISHED
    learner.settings = learner.settings.model_copy(update={"publish_every_s": 1e9})
    return state_of(learner).head_version


def test_a_candidate_says_where_it_comes_from(world: World, idle: LiveLearner) -> None:
    version = publish(idle)
    record = world.registry.get(version)
    assert (record.step, record.status) == (4, "candidate")
    assert record.parent == state_of(idle).start_version
    assert record.provenance["origin"] == "live"
    assert record.provenance["learner"] == "tide/default"
    assert record.provenance["num_experiences"] == 8
    assert record.provenance["first_experience"] == "0000-00000"
    assert record.provenance["last_experience"] == "0000-00007"
    assert idle.turn() is Did.WAITED, "nothing new to publish"


def test_a_crash_after_publishing_does_not_publish_twice(world: World, idle: LiveLearner) -> None:
    version = publish(idle)
    again = world.learner(**QUIET, publish_every_s=1e-9)
    assert state_of(again).head_version == version
    assert again.turn() is Did.WAITED


def test_a_verdict_on_its_own_version_resets_it_to_the_champion(
    world: World, idle: LiveLearner, champion: PolicyRecord
) -> None:
    version = publish(idle)
    baseline = state_of(idle).baseline
    world.registry.reject(version, why=WHY)
    assert idle.turn() is Did.RESET
    state = state_of(idle)
    assert (state.step, state.lineage, state.start_version) == (0, 2, champion.version)
    assert state.baseline == baseline
    assert idle._trainer is not None
    expected = idle.publisher.load(champion.version, lora=idle.lora, seed=0).tensors
    found = idle._trainer.adapter().tensors
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not any(name.startswith("exp_avg/") for name in idle._trainer.tensors())
    assert idle.turn() is Did.WAITED, "one verdict, one reset"
    assert world.learner(**QUIET).state == state, "a reset is durable"


def test_nothing_is_published_while_a_challenger_is_in_its_canary(
    world: World, idle: LiveLearner, champion: PolicyRecord
) -> None:
    first = publish(idle)
    world.registry.start_canary(first, share=0.5, alpha=0.05, why=WHY)
    idle.settings = idle.settings.model_copy(update={"publish_every_s": 1e-9})
    world.insert(world.experiences(4, version=champion.version, seed=1))
    assert Counter(run_until_idle(idle)) == {Did.STEPPED: 2, Did.WAITED: 1}
    world.registry.promote(first, why=WHY)
    assert idle.turn() is Did.PUBLISHED
    second = world.registry.get(state_of(idle).head_version)
    assert (second.parent, second.provenance["num_experiences"]) == (first, 4)


def test_only_experiences_of_the_champion_make_a_candidate_due(
    world: World, champion: PolicyRecord
) -> None:
    learner = world.learner(**QUIET, publish_every_s=1e9, publish_every_experiences=8)
    learner.turn()
    world.insert(world.experiences(4, version=champion.version))
    run_until_idle(learner)
    other = publish(learner)
    world.registry.promote(other, why=WHY)
    world.insert(world.experiences(4, version=champion.version, seed=1))
    world.insert(world.experiences(4, version=other, seed=2))
    assert Did.PUBLISHED not in run_until_idle(learner)
    world.insert(world.experiences(4, version=other, seed=3))
    assert Did.PUBLISHED in run_until_idle(learner)


def test_a_superseded_version_resets_nothing(world: World, idle: LiveLearner) -> None:
    version = publish(idle)
    world.registry.supersede(version, why=WHY)
    assert idle.turn() is Did.WAITED
    assert state_of(idle).step == 4


def test_a_promoted_version_goes_on_and_its_rollback_resets(
    world: World, idle: LiveLearner, champion: PolicyRecord
) -> None:
    version = publish(idle)
    world.registry.promote(version, why=WHY)
    assert idle.turn() is Did.WAITED
    world.registry.roll_back(why=WHY)
    assert idle.turn() is Did.RESET
    assert state_of(idle).start_version == champion.version


class RacingRegistry(PolicyRegistry):
    """Has its champion rolled back right after it was read, once."""

    is_over = False

    def champion(self) -> PolicyRecord | None:
        found = super().champion()
        if not self.is_over:
            self.is_over = True
            self.roll_back(why=WHY)
        return found


def test_a_rollback_during_a_reset_is_not_lost(
    world: World, idle: LiveLearner, champion: PolicyRecord
) -> None:
    first = publish(idle)
    world.registry.promote(first, why=WHY)
    world.insert(world.experiences(4, version=first, seed=1))
    run_until_idle(idle)
    second = publish(idle)
    world.registry.reject(second, why=WHY)
    idle.registry = RacingRegistry(world.database, model="tide", tenant="default")
    assert idle.turn() is Did.RESET
    assert state_of(idle).start_version == first, "read before the rollback"
    assert idle.turn() is Did.RESET
    assert state_of(idle).start_version == champion.version
    assert idle.turn() is Did.WAITED


def test_ten_candidates_held_in_a_row_do_not_stop_live_learning(
    world: World, champion: PolicyRecord
) -> None:
    """The champion stays, so its data grow stale; the learner returns to it and goes on."""
    settings = {**QUIET, "max_staleness_steps": 4, "publish_every_experiences": 4}
    learner = world.learner(**settings, publish_every_s=1e9)
    did: Counter[Did] = Counter()
    for number in range(10):
        world.insert(world.experiences(4, version=champion.version, seed=number))
        did.update(run_until_idle(learner))
    assert did[Did.PUBLISHED] == 10
    assert did[Did.STEPPED] == 20
    assert did[Did.RESET] > 1
    assert drops(world) == {}
    with world.database.reading() as session:
        metrics = [row.metrics for row in fetch_steps(session, learner.name)]
    assert max(m.get("max_staleness", 0) for m in metrics) <= 4


def test_a_promoted_version_of_an_earlier_lineage_is_where_it_goes_on(
    world: World, idle: LiveLearner
) -> None:
    first = publish(idle)
    world.insert(world.experiences(4, version=state_of(idle).start_version, seed=1))
    run_until_idle(idle)
    second = publish(idle)
    world.registry.reject(second, why=WHY)
    assert idle.turn() is Did.RESET
    assert state_of(idle).published_versions == ()
    world.registry.promote(first, why=WHY)
    assert idle.turn() is Did.RESET
    assert (state_of(idle).start_version, state_of(idle).step) == (first, 4)


def test_stale_pinned_and_unknown_experiences_are_dropped_with_their_reason(
    world: World, idle: LiveLearner, champion: PolicyRecord
) -> None:
    newer = publish(idle)
    world.registry.promote(newer, why=WHY)
    idle.settings = idle.settings.model_copy(update={"max_staleness_steps": 4})
    old = world.experiences(2, version=champion.version, seed=1)
    unknown = world.experiences(3, version="v77-777777777777", seed=2)
    pinned = [replace(e, arm="pinned") for e in world.experiences(1, version=newer, seed=3)]
    fresh = world.experiences(4, version=newer, seed=4)
    world.insert([*old, *unknown, *pinned, *fresh])
    assert Counter(run_until_idle(idle)) == {Did.STEPPED: 2, Did.WAITED: 1}
    assert drops(world) == {"stale": 2, "unknown_version": 3, "pinned": 1}
    assert idle.num_dropped == 5
    assert {e.experience_id for e in fresh} <= uses(world).keys()


def test_a_batch_without_a_finite_step_is_dropped_and_learning_goes_on(
    world: World, champion: PolicyRecord
) -> None:
    learner = world.learner(**QUIET)
    learner.turn()
    assert learner._trainer is not None
    sound = learner._trainer.tensors()
    nan = float("nan")
    broken = {n: torch.full_like(t, nan) if "weight/" in n else t for n, t in sound.items()}
    learner._trainer.restore(broken)
    world.insert(world.experiences(4, version=champion.version))
    assert learner.turn() is Did.REFUSED
    assert drops(world) == {"non_finite": 4}
    learner._trainer.restore(sound)
    world.insert(world.experiences(4, version=champion.version, seed=1))
    assert learner.turn() is Did.STEPPED
    assert state_of(learner).step == 1


def test_no_posted_interaction_stops_learning_or_takes_others_with_it(
    world: World, champion: PolicyRecord
) -> None:
    good = world.experiences(4, version=champion.version)
    given = world.experiences(7, version=champion.version, seed=1)
    size = len(given[0].completion_ids)
    changes: list[dict[str, Any]] = [
        {"kept_mass": (0.0,) * size, "is_truncated": True},
        {"prompt_ids": (world.base.vocabulary,)},
        {"completion_ids": (-1,) * size},
        {"prompt_ids": (1,) * world.base.max_context},
        {"behaviour_logprobs": (-1e308,) * size},
        {"behaviour_logprobs": (-1e30,) * size},
        {"temperature": 1e-4},
    ]
    poison = [replace(e, **change) for e, change in zip(given, changes, strict=True)]
    world.insert([*poison, *good])
    learner = world.learner(**QUIET)
    assert Counter(run_until_idle(learner)) == {Did.RESET: 1, Did.STEPPED: 2, Did.WAITED: 1}
    assert uses(world) == {e.experience_id: 2 for e in good}
    assert drops(world) == {
        "impossible_kept_mass": 1,
        "outside_vocabulary": 2,
        "too_long": 1,
        "impossible_logprob": 2,
        "greedy": 1,
    }


def test_a_missing_checkpoint_is_an_error_not_a_fresh_start(
    world: World, idle: LiveLearner
) -> None:
    for path in idle.checkpoints.folder.iterdir():
        path.unlink()
    with pytest.raises(SnapshotCorruptError):
        world.learner(**QUIET)


def test_rewards_that_follow_a_token_raise_its_probability(
    world: World, champion: PolicyRecord
) -> None:
    """A bandit: half of all tokens are rewarded; each version learns from the one before."""
    learner = world.learner(
        batch_size=32,
        uses_per_experience=3,
        max_batch_wait_s=1e9,
        optimiser={"lr": 3e-3, "kl_weight": 0.0},
        publish_every_experiences=64,
        publish_every_s=1e9,
    )
    version, means = champion.version, []
    for number in range(4):
        batch = world.experiences(64, version=version, seed=number, length=1)
        means.append(sum(e.reward for e in batch) / len(batch))
        world.insert(batch)
        run_until_idle(learner)
        version = state_of(learner).head_version
        world.registry.promote(version, why=WHY)
    # About 0.53, 0.67, 0.89, 0.86.
    assert min(means[2:]) > means[0] + 0.2
