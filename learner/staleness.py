"""Which experiences may enter a batch. Pure: each gets None, or the reason why it is dropped."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tidemill.contracts.events import MIN_TEMPERATURE, Arm
from tidemill.contracts.experience import Experience

MIN_LOGPROB = -104.0
"""exp of less is 0 in float32, and a token of probability 0 is never drawn."""
_ROUNDING = 1e-4
"""How far a log-prob or a mass may pass its bound."""
_CERTAIN = 1e-3
"""A token that was drawn with a probability of at least 1 - this was no draw."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the base takes."""

    vocabulary: int
    """Every token id is below."""
    max_tokens: int
    """Of prompt and completion together."""


class DropReason(StrEnum):
    """Why an experience is not trained on; the values are stored and counted."""

    STALE = "stale"
    """The oldest version that generated it is too many optimiser steps behind."""
    PINNED = "pinned"
    """The caller chose the version: not drawn from the traffic."""
    QUARANTINED = "quarantined"
    """Somebody in quarantine had a part in it."""
    UNKNOWN_VERSION = "unknown_version"
    """Its version is not in the registry, so its staleness is unknown."""
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    NO_KEPT_MASS = "no_kept_mass"
    """Sampled with top-p or top-k, but the mass that was left is unknown."""
    TOO_LONG = "too_long"
    OUTSIDE_VOCABULARY = "outside_vocabulary"
    """A token id that the base does not have."""
    NON_FINITE = "non_finite"
    """A number in it, or the step that it was in, is NaN or infinite."""
    OUT_OF_RANGE = "out_of_range"
    """The reward is not in [0, 1]."""
    IMPOSSIBLE_LOGPROB = "impossible_logprob"
    """A log-prob above 0, or so low that no sampler draws the token."""
    IMPOSSIBLE_KEPT_MASS = "impossible_kept_mass"
    """A kept mass that is not in (0, 1]."""
    GREEDY = "greedy"
    """No token was a draw: `top_k` 1, temperature 0, or almost; nothing was explored."""


def compute_staleness(*, learner_step: int, version_step: int) -> int:
    """Return learner step - step of the oldest generating version; never below 0.

    A version ahead of the learner (the learner was reset) is off-policy, but not stale.
    """
    return max(learner_step - version_step, 0)


def is_over_stale(staleness: int, *, num_uses: int, max_staleness: int) -> bool:
    """Tell whether one of the next `num_uses` steps would pass the bound."""
    return staleness + num_uses - 1 > max_staleness


def find_unfit(experience: Experience, limits: Limits) -> DropReason | None:
    """Return why no learner can use an experience, whatever its step; None = it can.

    Experiences come from whoever may post an interaction: what passes here cannot make a step fail.
    """
    return next(_flaws(experience, limits), None)


def _flaws(experience: Experience, limits: Limits) -> Iterator[DropReason]:
    """Yield flaws in an order in which each check may rely on those before it."""
    if experience.arm == Arm.PINNED:
        yield DropReason.PINNED
    yield from _token_flaws(experience, limits)
    num_tokens = len(experience.completion_ids)
    if len(experience.behaviour_logprobs or ()) != num_tokens:
        yield DropReason.NO_LOGPROBS
    if experience.is_truncated and len(experience.kept_mass or ()) != num_tokens:
        yield DropReason.NO_KEPT_MASS
    yield from _number_flaws(experience)
    if experience.temperature < MIN_TEMPERATURE or _is_certain(experience):
        yield DropReason.GREEDY


def _token_flaws(experience: Experience, limits: Limits) -> Iterator[DropReason]:
    if not experience.prompt_ids or not experience.completion_ids:
        yield DropReason.NO_TOKENS
    ids = experience.prompt_ids + experience.completion_ids
    if len(ids) > limits.max_tokens:
        yield DropReason.TOO_LONG
    if not all(0 <= token_id < limits.vocabulary for token_id in ids):
        yield DropReason.OUTSIDE_VOCABULARY


def _number_flaws(experience: Experience) -> Iterator[DropReason]:
    logprobs, masses = experience.behaviour_logprobs or (), experience.kept_mass or ()
    if not all(map(math.isfinite, (experience.reward, experience.temperature, *logprobs, *masses))):
        yield DropReason.NON_FINITE
    if not 0 <= experience.reward <= 1:
        yield DropReason.OUT_OF_RANGE
    if not all(MIN_LOGPROB <= logprob <= _ROUNDING for logprob in logprobs):
        yield DropReason.IMPOSSIBLE_LOGPROB
    if not all(0 < mass <= 1 + _ROUNDING for mass in masses):
        yield DropReason.IMPOSSIBLE_KEPT_MASS


def _is_certain(experience: Experience) -> bool:
    """Tell whether truncation left one token at each place, so that nothing was drawn."""
    if not experience.is_truncated:
        return False
    logprobs, masses = experience.behaviour_logprobs or (), experience.kept_mass or ()
    pairs = zip(logprobs, masses, strict=True)
    return all(logprob - math.log(mass) >= -_CERTAIN for logprob, mass in pairs)
