"""One metric: from raw values to a score in [0, 1]. Pure.

raw      = aggregate(values in log order)
score    = clip((raw - least) / (greatest - least), 0, 1)      higher is better
         = 1 - that                                            lower is better
"""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from tidemill.contracts.events import Comment, Demonstration, Edit, FeedbackValue
from tidemill.rewards.metrics import Aggregation, Direction, Level, Metric, MetricType

_KINDS: dict[MetricType, type] = {
    MetricType.BOOL: bool,
    MetricType.FLOAT: float,
    MetricType.EDIT: Edit,
    MetricType.COMMENT: Comment,
    MetricType.DEMONSTRATION: Demonstration,
}

_SAFE = 1e300
"""A hundred million doubles of this size still add up to a finite one."""


def refusal(metric: Metric, value: FeedbackValue, *, names_interaction: bool) -> str | None:
    """Return why a value is none of this metric's; None = it fits."""
    if not isinstance(value, _KINDS[metric.type]):
        return f"the metric is a {metric.type}, the value a {_kind_of(value)}"
    if names_interaction and metric.level is Level.TRAJECTORY:
        return "the metric is declared for a trajectory; leave interaction_id out"
    if not names_interaction and metric.level is Level.INTERACTION:
        return "the metric is declared for an interaction; give interaction_id"
    if isinstance(value, float) and metric.aggregation is not Aggregation.SUM:
        low, high = metric.bounds
        if not low <= value <= high:
            return f"{value!r} lies outside {low!r} to {high!r}"
    return None


def raw_number(value: FeedbackValue, *, completion: str) -> float | None:
    """Return a value as a number; None = words have none."""
    if isinstance(value, bool | float):
        return float(value)
    if not isinstance(value, Edit):
        return None
    if value.kept_fraction is not None:
        return value.kept_fraction
    return kept_fraction(completion, value.final_text or "")


def kept_fraction(completion: str, final_text: str) -> float:
    """Return the share of the completion's words that are still in the final text.

    Words are counted, their order is not compared, so that the cost stays linear.
    """
    words = Counter(completion.split())
    total = words.total()
    if total == 0:
        return 1.0 if not final_text.split() else 0.0
    return (words & Counter(final_text.split())).total() / total


def aggregate(values: Sequence[float], how: Aggregation) -> float:
    """Make one number of the values of one metric, given in log order.

    `majority` takes the value that most gave; a tie goes to the one given last. A sum beyond all
    doubles is infinite.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no value to aggregate; silence has a default or none")
    match how:
        case Aggregation.LAST:
            return values[-1]
        case Aggregation.FIRST:
            return values[0]
        case Aggregation.MEAN:
            return _sum(values, of=len(values))
        case Aggregation.SUM:
            return _sum(values)
        case Aggregation.MAX:
            return max(values)
        case Aggregation.MIN:
            return min(values)
        case Aggregation.MAJORITY:
            counts = Counter(values)
            last = {value: index for index, value in enumerate(values)}
            return max(counts, key=lambda value: (counts[value], last[value]))


def _sum(values: Sequence[float], *, of: int = 1) -> float:
    if all(abs(value) <= _SAFE for value in values):
        return math.fsum(values) / of
    # `fsum` overflows here, and in some orders only; a sum beyond all doubles is infinite, which
    # `normalise` takes to the end of the range.
    exact = sum(map(Fraction, values), start=Fraction()) / of
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def normalise(metric: Metric, raw: float) -> float:
    """Return the score in [0, 1] of an aggregated number, 1 = good."""
    low, high = metric.bounds
    # Halves, since the difference of two finite doubles may be infinite.
    share = (raw / 2 - low / 2) / (high / 2 - low / 2)
    score = min(1.0, max(0.0, share))
    return 1.0 - score if metric.direction is Direction.LOWER else score


def _kind_of(value: FeedbackValue) -> str:
    return next(kind for kind, python in _KINDS.items() if isinstance(value, python))
