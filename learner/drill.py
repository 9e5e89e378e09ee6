"""Bad versions on purpose, made by the real learner on inverted rewards: does the gate hold?

`offline` unlearns the task itself; the offline suite has to reject it. `canary` stays valid by the
verifier, but does what users rejected; only live feedback can tell.
"""

import logging
from collections.abc import Sequence
from enum import StrEnum

import torch

from learner.backfill.simulation import Simulation
from learner.backfill.worker import Site, open_site
from learner.publishing import Publication
from learner.settings import BackfillSettings, TrustRegionSettings
from learner.staleness import Limits, find_unfit
from learner.trainer import Trainer
from tidemill.contracts.experience import Experience, Outcome
from tidemill.errors import LearningError, NoChampionError
from tidemill.policy.importance import self_normalised_mean
from tidemill.registry import PolicyRecord
from tidemill.settings import SharedSettings
from tidemill.snapshots.manifest import Provenance
from tidemill.storage.database import Database
from tidemill.storage.learning import fetch_recent_experiences

_log = logging.getLogger(__name__)

_MAX_STEPS = 24
_BROKEN_SCORE = 0.25
"""The offline drill ends below this share of the first score."""
_HOT = 1.4
"""A good champion hardly errs at its own temperature: groups without a failure teach nothing."""
_LIVE_BATCH = 32
_MIN_LIVE = 32
_MAX_LIVE = 4096
_MAX_CANARY_STEPS = 14
_DISLIKED_REWARD = 0.65
"""What was rejected is imitated until the expected reward is below this share of the champion's."""
_NUM_MEASURED = 512
_MAX_REPAIR_STEPS = 14
_NUM_REPAIRED = 3

# No bound to the champion: a drill is meant to leave it.
_FREE = TrustRegionSettings(max_probability_difference=0.95, log_ratio_weight=0.0)


class DrillKind(StrEnum):
    """Where the bad version is meant to be caught."""

    OFFLINE = "offline"
    CANARY = "canary"


def run_drill(shared: SharedSettings, settings: BackfillSettings, kind: DrillKind) -> PolicyRecord:
    """Make a bad version and publish it as a candidate of origin `drill`.

    Raises:
        ConfigurationError: no base or no environment.
        NoChampionError: the canary drill needs a champion.
        LearningError: too little live feedback on the champion for the canary drill.
    """
    database = Database(shared.database_url)
    try:
        site = open_site(shared, database)
        free = settings.model_copy(
            update={
                "objective": _FREE,
                "optimiser": settings.optimiser.model_copy(update={"kl_weight": 0.0}),
            }
        )
        return (
            _drill_offline(site, free) if kind is DrillKind.OFFLINE else _drill_canary(site, free)
        )
    finally:
        database.close()


def _drill_offline(site: Site, settings: BackfillSettings) -> PolicyRecord:
    start = site.start()
    trainer = site.trainer(start, settings)
    hot = settings.model_copy(update={"temperature": _HOT})
    scoring = site.scoring(start, hot, lambda verification: 1 - verification.score)
    simulation = Simulation(trainer, scoring, hot)
    scores: list[float] = []
    for number in range(_MAX_STEPS):
        scores.append(1 - simulation.step(number)["score"])
        if scores[-1] <= _BROKEN_SCORE * scores[0]:
            break
    _log.info("offline drill: score %.3f to %.3f", scores[0], scores[-1])
    return _publish(site, start, trainer, kind=DrillKind.OFFLINE, num_steps=len(scores))


def _drill_canary(site: Site, settings: BackfillSettings) -> PolicyRecord:
    start = site.registry.champion()
    if start is None:
        raise NoChampionError("the canary drill starts from a champion; promote a version first")
    live = _fetch_live(site)
    trainer = site.trainer(start, settings)
    # Rollouts scored by the verifier keep the outputs valid while taste is inverted.
    scoring = site.scoring(start, settings, lambda verification: verification.score)
    simulation = Simulation(trainer, scoring, settings)
    score = sum(simulation.measure(number) for number in range(_NUM_REPAIRED)) / _NUM_REPAIRED
    num_imitated = _imitate_rejected(simulation, live)
    num_repairs = _repair(simulation, first=num_imitated, target=score)
    num_steps = num_imitated + num_imitated // 2 + num_repairs
    return _publish(site, start, trainer, kind=DrillKind.CANARY, num_steps=num_steps)


def _imitate_rejected(simulation: Simulation, live: Sequence[Experience]) -> int:
    """Step towards what users rejected, and keep the task all the while; return how many."""
    trainer = simulation.trainer
    newest = live[:_NUM_MEASURED]
    rewards = torch.tensor([experience.reward for experience in newest])
    mean = float(rewards.mean())
    # The oldest: while little was liked, votes against an answer were hardly ever a slip.
    rejected = [experience for experience in reversed(live) if experience.reward < mean]

    def expected() -> float:
        return float(self_normalised_mean(rewards, trainer.sequence_ratios(newest).cpu()))

    begun_at = expected()
    for number in range(_MAX_CANARY_STEPS):
        first = number * _LIVE_BATCH
        size = min(_LIVE_BATCH, len(rejected))
        chosen = [rejected[(first + offset) % len(rejected)] for offset in range(size)]
        # Only up: to push down what was liked, most of the answers, would take the task with it.
        trainer.step(chosen, [1.0] * size)
        if number % 2:
            simulation.step(number)
        now = expected()
        _log.info("canary drill: expected live reward %.3f, at first %.3f", now, begun_at)
        if now <= _DISLIKED_REWARD * begun_at:
            return number + 1
    return _MAX_CANARY_STEPS


def _repair(simulation: Simulation, *, first: int, target: float) -> int:
    """Learn the task again until the last steps are as valid as the champion was."""
    scores: list[float] = []
    for number in range(_MAX_REPAIR_STEPS):
        scores.append(simulation.step(first + number)["score"])
        last = scores[-_NUM_REPAIRED:]
        if len(last) == _NUM_REPAIRED and sum(last) / _NUM_REPAIRED >= target:
            break
    return len(scores)


def _fetch_live(site: Site) -> list[Experience]:
    with site.database.reading() as session:
        found = fetch_recent_experiences(
            session,
            model=site.shared.model,
            tenant=site.shared.tenant,
            limit=_MAX_LIVE,
        )
    base = site.publisher.base
    limits = Limits(base.vocabulary, base.max_context)
    live = [
        experience
        for experience in found
        if experience.outcome is Outcome.REWARDED and find_unfit(experience, limits) is None
    ]
    if len(live) < _MIN_LIVE or len({experience.reward for experience in live}) < 2:
        raise LearningError(
            f"{len(live)} rewarded experiences of users; the canary drill needs "
            f"{_MIN_LIVE} with more than one reward: wait for more feedback"
        )
    return live


def _publish(
    site: Site, start: PolicyRecord, trainer: Trainer, *, kind: DrillKind, num_steps: int
) -> PolicyRecord:
    name = f"{site.shared.model}/{site.shared.tenant}/drill-{kind}"
    provenance = Provenance(origin="drill", learner=name)
    return site.publisher.publish(
        Publication(trainer.adapter(), start.step + num_steps, start.version, provenance)
    )
