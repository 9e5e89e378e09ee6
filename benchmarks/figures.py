"""What is made of measured figures: percentiles, medians, targets. Pure."""

import math
import statistics
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Target(BaseModel):
    """One bar, and whether the measured value takes it."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: float | None
    """None = not measured in this run, so not met."""
    target: float
    met: bool


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of the values do not exceed.

    Raises:
        ValueError: no values, or a share outside (0, 1].
    """
    if not values or not 0 < share <= 1:
        raise ValueError(f"{len(values)} values and share {share}; give a value and 0 < share <= 1")
    return sorted(values)[math.ceil(share * len(values)) - 1]


def median(values: Sequence[float]) -> float | None:
    """Return the median; None = there is no value."""
    return statistics.median(values) if values else None


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Return the median over rounds of ours by theirs: what slows a round slows both.

    Raises:
        ValueError: not as many rounds of the one as of the other.
    """
    return median([mine / other for mine, other in zip(ours, theirs, strict=True)])


def largest_change(values: Sequence[float]) -> float | None:
    """Return how far a value lies from the first at most, as a share of the first; None = no value.

    Raises:
        ZeroDivisionError: the first is 0.
    """
    return max((abs(one / values[0] - 1) for one in values), default=None)


def judge(
    name: str, value: float | None, bound: float, *, side: Literal["least", "most"]
) -> Target:
    """Hold a value against the least, or the most, that it may be."""
    is_met = value is not None and (value >= bound if side == "least" else value <= bound)
    return Target(name=name, value=value, target=bound, met=is_met)
