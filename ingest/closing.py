"""What an interaction is worth once its windows are over. Pure.

The wall clock decides only when this is asked; the answer depends on the log alone.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tidemill.contracts.events import InteractionServed
from tidemill.contracts.experience import Experience, Origin, Outcome
from tidemill.rewards.composite import Reward, compute_reward
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.votes import Vote, votes_that_count


class InteractionState(StrEnum):
    """Where an interaction stands in the ledger; the values are the stored strings."""

    OPEN = "open"
    REWARDED = "rewarded"
    DEFAULTED = "defaulted"
    MALFORMED = "malformed"
    EXCLUDED = "excluded"
    ERASED = "erased"


class ExcludedReason(StrEnum):
    """Why an interaction gives no experience."""

    NO_CONSENT = "no_consent"
    INCOMPLETE = "incomplete"
    """Without token ids."""
    SILENT = "silent"
    """A needed metric has no answer and no default."""
    VERIFIER_FAILED = "verifier_failed"
    JUDGE_FAILED = "judge_failed"
    """No answer within the declared time: an outage is never a 0."""


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of one interaction."""

    state: InteractionState
    reason: ExcludedReason | None = None
    experience: Experience | None = None


def exclusion(event: InteractionServed) -> ExcludedReason | None:
    """Return why nobody may learn from an interaction, whatever is said of it."""
    if not event.consent_train:
        return ExcludedReason.NO_CONSENT
    if not event.prompt_ids or not event.completion_ids:
        return ExcludedReason.INCOMPLETE
    return None


def close(
    event: InteractionServed,
    votes: Iterable[Vote],
    metrics: MetricsFile,
    *,
    served_at: datetime,
    checked: Mapping[str, float] | ExcludedReason,
) -> Closing:
    """Return the state an interaction ends in, with its experience if it has one.

    Args:
        event: the interaction.
        votes: all feedback on it and on its trajectory, in any order.
        metrics: the declared metrics.
        served_at: append time of the interaction.
        checked: scores of the declared verifiers and judges, or why there are none.
    """
    reason = exclusion(event)
    if reason is not None:
        return Closing(InteractionState.EXCLUDED, reason)
    if event.is_malformed:
        zero = Reward(0.0, {}, is_defaulted=False)
        experience = _experience(event, zero, Outcome.MALFORMED, metrics)
        return Closing(InteractionState.MALFORMED, experience=experience)
    if isinstance(checked, ExcludedReason):
        return Closing(InteractionState.EXCLUDED, checked)
    chosen = votes_that_count(votes, metrics, served_at=served_at)
    completion = event.content.completion
    reward = compute_reward(metrics, chosen, completion=completion, checked=checked)
    if reward is None:
        return Closing(InteractionState.EXCLUDED, ExcludedReason.SILENT)
    outcome = Outcome.DEFAULTED if reward.is_defaulted else Outcome.REWARDED
    experience = _experience(event, reward, outcome, metrics)
    return Closing(InteractionState(outcome.value), experience=experience)


def context_of(event: InteractionServed) -> str:
    """Return the key of the per-context baseline: the declared one, else a hash of the prompt."""
    if event.context is not None:
        return event.context
    digest = hashlib.sha256(json.dumps(event.prompt_ids).encode()).hexdigest()
    return f"prompt:{digest[:16]}"


def _experience(
    event: InteractionServed, reward: Reward, outcome: Outcome, metrics: MetricsFile
) -> Experience:
    return Experience(
        experience_id=event.interaction_id,
        origin=Origin.LIVE,
        tenant=event.tenant,
        model=event.model,
        trajectory_id=event.trajectory_id,
        turn=event.turn,
        subject=event.subject,
        context=context_of(event),
        group=None,
        oldest_policy_version=event.oldest_policy_version,
        newest_policy_version=event.newest_policy_version,
        arm=event.arm.value,
        assignment_probability=event.assignment_probability,
        prompt_ids=event.prompt_ids,
        completion_ids=event.completion_ids,
        behaviour_logprobs=event.behaviour_logprobs,
        temperature=event.sampling.temperature,
        is_truncated=event.sampling.is_truncated,
        kept_mass=event.kept_mass,
        finish_reason=event.finish_reason.value,
        outcome=outcome,
        reward=reward.value,
        components=reward.components,
        reward_spec_hash=metrics.reward_spec_hash,
    )
