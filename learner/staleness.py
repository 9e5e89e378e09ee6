"""Which experiences may enter a batch. Pure: each gets None, or the reason why it is dropped."""

import math
from enum import StrEnum

from tidemill.contracts.events import Arm
from tidemill.contracts.experience import Experience


class DropReason(StrEnum):
    """Why an experience is not trained on; the values are stored and counted."""

    STALE = "stale"
    """The oldest version that generated it is too many optimiser steps behind."""
    PINNED = "pinned"
    """The caller chose the version: not drawn from the traffic."""
    UNKNOWN_VERSION = "unknown_version"
    """Its version is not in the registry, so its staleness is unknown."""
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    NO_KEPT_MASS = "no_kept_mass"
    """Sampled with top-p or top-k, but the mass that was left is unknown."""
    TOO_LONG = "too_long"
    NON_FINITE = "non_finite"
    """A number in it, or the step that it was in, is NaN or infinite."""
    OUT_OF_RANGE = "out_of_range"
    """The reward is not in [0, 1]."""


def compute_staleness(*, learner_step: int, version_step: int) -> int:
    """Return learner step - step of the oldest generating version; never below 0.

    A version ahead of the learner (the learner was reset) is off-policy, but not stale.
    """
    return max(learner_step - version_step, 0)


def is_over_stale(staleness: int, *, num_uses: int, max_staleness: int) -> bool:
    """Tell whether one of the next `num_uses` steps would pass the bound."""
    return staleness + num_uses - 1 > max_staleness


def find_unfit(experience: Experience, *, max_tokens: int) -> DropReason | None:
    """Return why no learner can use an experience, whatever its step; None = it can."""
    has_logprobs = experience.behaviour_logprobs is not None
    values = (experience.reward, *(experience.behaviour_logprobs or ()))
    values += experience.kept_mass or ()
    checks = (
        (experience.arm == Arm.PINNED, DropReason.PINNED),
        (not experience.prompt_ids or not experience.completion_ids, DropReason.NO_TOKENS),
        (not has_logprobs, DropReason.NO_LOGPROBS),
        (experience.is_truncated and experience.kept_mass is None, DropReason.NO_KEPT_MASS),
        (
            len(experience.prompt_ids) + len(experience.completion_ids) > max_tokens,
            DropReason.TOO_LONG,
        ),
        (not all(map(math.isfinite, values)), DropReason.NON_FINITE),
        (not 0 <= experience.reward <= 1, DropReason.OUT_OF_RANGE),
    )
    return next((reason for is_unfit, reason in checks if is_unfit), None)
