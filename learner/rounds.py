"""How a learner's state moves: a lineage begins, a round begins, a step is done, a version is out.

States in, states out; nothing is read or written.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from learner.advantages import (
    BaselineState,
    compute_shrunk_baselines,
    scale_by_std,
    update_baseline,
)
from learner.settings import BaselineSettings
from learner.state import LearnerState, Round
from tidemill.contracts.experience import Experience


def begin_lineage(
    old: LearnerState | None, *, champion: str, step: int, last_transition: int, at: float
) -> LearnerState:
    """Return the state of a fresh start at a champion; the baseline and the counters go on."""
    serial = old.serial + 1 if old else 1
    return LearnerState(
        serial=serial,
        step=step,
        lineage=old.lineage + 1 if old else 1,
        start_version=champion,
        published_versions=(),
        published_number=old.published_number if old else 0,
        published_serial=serial,
        published_at=old.published_at if old else at,
        last_transition=last_transition,
        unpublished={},
        first_experience=None,
        last_experience=None,
        reward_spec_hash=None,
        metrics={},
        baseline=old.baseline if old else BaselineState.empty(),
        current_round=None,
    )


def begin_round(
    state: LearnerState,
    batch: Sequence[Experience],
    *,
    baseline: BaselineSettings,
    is_scaled: bool,
) -> LearnerState:
    """Score a batch against the baseline, then let the baseline remember it.

    Raises:
        EstimatorError: a batch of one.
    """
    contexts, rewards = [e.context for e in batch], [e.reward for e in batch]
    baselines = compute_shrunk_baselines(
        state.baseline, contexts, rewards, prior_weight=baseline.prior_weight
    )
    advantages = [r - b for r, b in zip(rewards, baselines, strict=True)]
    if is_scaled:
        advantages = scale_by_std(advantages)
    ids = tuple(experience.experience_id for experience in batch)
    remembered = update_baseline(
        state.baseline,
        contexts,
        rewards,
        forgetting=baseline.forgetting,
        max_contexts=baseline.max_contexts,
    )
    return replace(
        state,
        baseline=remembered,
        current_round=Round(ids, tuple(advantages)),
        unpublished=dict(
            Counter(state.unpublished) + Counter(e.newest_policy_version for e in batch)
        ),
        first_experience=state.first_experience or ids[0],
        last_experience=ids[-1],
        reward_spec_hash=batch[-1].reward_spec_hash,
    )


def finish_step(
    state: LearnerState, current: Round, *, num_uses: int, metrics: dict[str, float]
) -> LearnerState:
    """Return the state after one optimiser step on a round (its experiences as they are now)."""
    num_done = current.num_done + 1
    rest = Round(current.experience_ids, current.advantages, num_done)
    return replace(
        state,
        serial=state.serial + 1,
        step=state.step + 1,
        metrics=metrics,
        current_round=rest if num_done < num_uses else None,
    )


def note_published(
    state: LearnerState, version: str, *, number: int, step: int, at: float
) -> LearnerState:
    """Return the state after this learner published a version."""
    return replace(
        state,
        published_versions=(*state.published_versions, version),
        published_number=number,
        published_serial=state.serial if step == state.step else state.published_serial,
        published_at=at,
        unpublished={},
        first_experience=None,
        last_experience=None,
    )
