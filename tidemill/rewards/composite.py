"""The reward of one interaction: sum of w * s over sum of w, with vetoes. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.rewards.metrics import Metric, MetricsFile, VerifierSpec
from tidemill.rewards.rubric import JudgeSpec
from tidemill.rewards.scoring import aggregate, normalise, raw_number
from tidemill.rewards.votes import Vote


@dataclass(frozen=True, slots=True)
class Component:
    """One part of a reward."""

    score: float
    """In [0, 1]."""
    weight: float
    veto_below: float | None = None

    @property
    def is_veto(self) -> bool:
        """Whether it alone makes the reward 0."""
        return self.veto_below is not None and self.score < self.veto_below


@dataclass(frozen=True, slots=True)
class Reward:
    """A reward and what it was made of."""

    value: float
    """In [0, 1]."""
    components: dict[str, float]
    is_defaulted: bool
    """Nobody answered: the declared defaults stand in."""


def combine(components: Sequence[Component]) -> float | None:
    """Return sum(w * s) / sum(w), 0 under a veto; None when no component has weight.

    The sums are exact, so the order of the components does not matter.
    """
    total = math.fsum(component.weight for component in components)
    if total <= 0:
        return None
    if any(component.is_veto for component in components):
        return 0.0
    return min(1.0, math.fsum(c.weight * c.score for c in components) / total)


def compute_reward(
    spec: MetricsFile,
    votes: Mapping[str, Sequence[Vote]],
    *,
    completion: str,
    checked: Mapping[str, float],
) -> Reward | None:
    """Return the reward of an interaction; None = a needed answer is missing.

    Args:
        spec: the declared metrics, verifiers and judges.
        votes: what `votes_that_count` chose.
        completion: the text that edits are compared with.
        checked: score in [0, 1] of each declared verifier and judge.
    """
    checks: dict[str, VerifierSpec | JudgeSpec] = {**spec.verifiers, **spec.judges}
    components = {
        name: Component(checked[name], check.weight, check.veto_below)
        for name, check in checks.items()
    }
    num_answered = num_defaulted = 0
    for name, metric in spec.metrics.items():
        if not metric.is_scored:
            continue
        raw = _answer(metric, votes.get(name, ()), completion)
        if raw is not None:
            num_answered += 1
        elif metric.default is not None:
            raw = float(metric.default)
            num_defaulted += 1
        elif metric.optional:
            continue
        else:
            return None
        components[name] = Component(normalise(metric, raw), metric.weight, metric.veto_below)
    value = combine(tuple(components.values()))
    if value is None:
        return None
    scores = {name: components[name].score for name in sorted(components)}
    return Reward(value, scores, is_defaulted=num_defaulted > 0 and num_answered == 0)


def _answer(metric: Metric, votes: Sequence[Vote], completion: str) -> float | None:
    numbers = [raw_number(vote.value, completion=completion) for vote in votes]
    known = [number for number in numbers if number is not None]
    return aggregate(known, metric.aggregation) if known else None
