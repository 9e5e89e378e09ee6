"""Backfill on demand: simulated steps from the champion (or the base), one candidate at the end."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from learner.backfill.rollouts import Reward, Scoring
from learner.backfill.simulation import Simulation
from learner.base_version import ensure_base_version
from learner.publishing import Publication, Publisher
from learner.settings import BackfillSettings
from learner.trainer import Trainer
from tidemill.environments.base import Environment
from tidemill.environments.loading import load_environment
from tidemill.policy.base_model import load_base
from tidemill.policy.devices import prepare_torch
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.snapshots.manifest import Provenance
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.learning import StepRecord, fetch_last_step, record_step
from tidemill.storage.schema import require_current_schema

_log = logging.getLogger(__name__)

Tell = Callable[[int, dict[str, float]], None]
"""Hears of each step: its number from 0 and its metrics."""

_NUM_FOR_TARGET = 3
"""Steps whose mean score has to reach the target: one lucky batch is not enough."""


@dataclass(frozen=True, slots=True)
class Site:
    """What a run on demand works on."""

    shared: SharedSettings
    database: Database
    environment: Environment
    publisher: Publisher

    @property
    def registry(self) -> PolicyRegistry:
        """The versions."""
        return self.publisher.registry

    def start(self) -> PolicyRecord:
        """Return the version to start from: the champion, or the base while there is none."""
        champion = self.registry.champion()
        if champion is not None:
            return champion
        return self.registry.get(ensure_base_version(self.shared, self.database))

    def trainer(self, start: PolicyRecord, settings: BackfillSettings) -> Trainer:
        """Return a fresh trainer at a version."""
        weights = self.publisher.load(
            start.version, lora=self.shared.policy.lora, seed=settings.seed
        )
        return Trainer(
            self.publisher.base,
            start=weights,
            settings=settings.optimiser,
            objective=settings.objective,
        )

    def scoring(self, start: PolicyRecord, settings: BackfillSettings, reward: Reward) -> Scoring:
        """Return how rollouts from a version are judged."""
        return Scoring(
            environment=self.environment,
            reward=reward,
            tenant=self.shared.tenant,
            model=self.shared.model,
            version=start.version,
            temperature=settings.temperature,
        )


def open_site(shared: SharedSettings, database: Database) -> Site:
    """Load base and environment; the base becomes v0 if it is new.

    Raises:
        ConfigurationError: no base or no environment.
        StorageError: the database does not have the current tables.
    """
    prepare_torch(shared.policy)
    require_current_schema(database)
    environment = load_environment(shared.environment)
    ensure_base_version(shared, database)
    registry = PolicyRegistry(database, model=shared.model, tenant=shared.tenant)
    base = load_base(shared.base_path, settings=shared.policy)
    store = SnapshotStore(shared.snapshots_path)
    return Site(shared, database, environment, Publisher(base, store, registry))


def run_backfill(
    shared: SharedSettings,
    settings: BackfillSettings,
    *,
    steps: int | None = None,
    tell: Tell | None = None,
) -> PolicyRecord:
    """Train on simulated rollouts and publish one candidate; equal settings give equal weights.

    Args:
        shared: the installation.
        settings: the run.
        steps: optimiser steps instead of the settings' number.
        tell: hears of each step.

    Raises:
        ConfigurationError: no base or no environment.
        NonFiniteError: a step was not finite; nothing is published.
    """
    database = Database(shared.database_url)
    try:
        return backfill(open_site(shared, database), settings, steps=steps, tell=tell)
    finally:
        database.close()


def backfill(
    site: Site, settings: BackfillSettings, *, steps: int | None = None, tell: Tell | None = None
) -> PolicyRecord:
    """Do a run on an opened site; raises as `run_backfill` does."""
    start = site.start()
    trainer = site.trainer(start, settings)
    scoring = site.scoring(start, settings, lambda verification: verification.score)
    simulation = Simulation(trainer, scoring, settings)
    name = f"{site.shared.model}/{site.shared.tenant}/backfill"
    step, scores, metrics, num_experiences = start.step, [], {}, 0
    for number in range(steps or settings.steps):
        metrics = simulation.step(number)
        step += metrics["num_trained"] > 0
        num_experiences += int(metrics["num_trained"])
        scores.append(metrics["score"])
        _record(site, name, step=step, parent=start.version, metrics=metrics)
        if tell is not None:
            tell(number, metrics)
        if _is_reached(scores, settings.target_score):
            break
    _log.info("backfill: %d steps, score %.3f to %.3f", len(scores), scores[0], scores[-1])
    provenance = Provenance(
        origin="backfill",
        learner=name,
        num_experiences=num_experiences,
        reward_spec_hash=site.environment.name,
        metrics=metrics,
    )
    return site.publisher.publish(Publication(trainer.adapter(), step, start.version, provenance))


def _is_reached(scores: list[float], target: float | None) -> bool:
    if target is None or len(scores) < _NUM_FOR_TARGET:
        return False
    return sum(scores[-_NUM_FOR_TARGET:]) / _NUM_FOR_TARGET >= target


def _record(site: Site, learner: str, *, step: int, parent: str, metrics: dict[str, float]) -> None:
    """Keep a step's figures; a run is short and repeatable, so it has no checkpoint."""
    with site.database.transaction() as session:
        last = fetch_last_step(session, learner)
        record = StepRecord(
            learner=learner,
            serial=last.serial + 1 if last else 1,
            step=step,
            lineage=1,
            origin="simulated",
            parent_version=parent,
            checkpoint=None,
            checkpoint_digest=None,
            metrics=metrics,
            finished_at=datetime.now(UTC),
        )
        record_step(session, record)
