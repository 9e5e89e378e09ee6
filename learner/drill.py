"""Bad versions on purpose, made by the real learner on inverted rewards: does the gate hold?

`offline` unlearns the task itself; the offline suite has to reject it. `canary` stays valid by the
verifier, but does what users rejected; only live feedback can tell.
"""

import logging
from enum import StrEnum

from learner.advantages import scale_by_std
from learner.backfill.simulation import Simulation
from learner.backfill.worker import Site, open_site
from learner.publishing import Publication
from learner.settings import BackfillSettings, TrustRegionSettings
from learner.trainer import Trainer
from tidemill.contracts.experience import Experience, Outcome
from tidemill.errors import LearningError, NoChampionError
from tidemill.registry import PolicyRecord
from tidemill.settings import SharedSettings
from tidemill.snapshots.manifest import Provenance
from tidemill.storage.database import Database
from tidemill.storage.learning import fetch_recent_experiences

_log = logging.getLogger(__name__)

_MAX_STEPS = 24
_BROKEN_SCORE = 0.25
"""The offline drill ends below this share of the first score."""
_LIVE_BATCH = 32
_MIN_LIVE = 32
_MAX_LIVE = 512
_CANARY_STEPS = 5
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
    scoring = site.scoring(start, settings, lambda verification: 1 - verification.score)
    simulation = Simulation(trainer, scoring, settings)
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
    live = _fetch_live(site, start)
    trainer = site.trainer(start, settings)
    # Rollouts scored by the verifier keep the outputs valid while taste is inverted.
    scoring = site.scoring(start, settings, lambda verification: verification.score)
    simulation = Simulation(trainer, scoring, settings)
    score = sum(simulation.measure(number) for number in range(_NUM_REPAIRED)) / _NUM_REPAIRED
    mean = sum(experience.reward for experience in live) / len(live)
    inverted = scale_by_std([mean - experience.reward for experience in live])
    for number in range(_CANARY_STEPS):
        first = number * _LIVE_BATCH
        chosen = [(first + offset) % len(live) for offset in range(_LIVE_BATCH)]
        trainer.step([live[i] for i in chosen], [inverted[i] for i in chosen])
        simulation.step(number)
    num_repairs = _repair(simulation, target=score)
    num_steps = 2 * _CANARY_STEPS + num_repairs
    return _publish(site, start, trainer, kind=DrillKind.CANARY, num_steps=num_steps)


def _repair(simulation: Simulation, *, target: float) -> int:
    """Learn the task again until the last steps are as valid as the champion was."""
    scores: list[float] = []
    for number in range(_MAX_REPAIR_STEPS):
        scores.append(simulation.step(_CANARY_STEPS + number)["score"])
        last = scores[-_NUM_REPAIRED:]
        if len(last) == _NUM_REPAIRED and sum(last) / _NUM_REPAIRED >= target:
            break
    return len(scores)


def _fetch_live(site: Site, champion: PolicyRecord) -> list[Experience]:
    with site.database.reading() as session:
        found = fetch_recent_experiences(
            session,
            model=site.shared.model,
            tenant=site.shared.tenant,
            version=champion.version,
            limit=_MAX_LIVE,
        )
    live = [
        experience
        for experience in found
        if experience.outcome is Outcome.REWARDED and experience.behaviour_logprobs
    ]
    if len(live) < _MIN_LIVE or len({experience.reward for experience in live}) < 2:
        raise LearningError(
            f"{len(live)} rewarded experiences of {champion.version}; the canary drill needs "
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
