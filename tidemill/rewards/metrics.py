"""Metrics as declared: what a signal is called, what it may be, and how it counts."""

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

from pydantic import Field, model_validator

from tidemill.rewards.bounds import Finite, Name, Share, Weight
from tidemill.rewards.rubric import JudgeSpec
from tidemill.rewards.signals import Signal, with_preset
from tidemill.settings import Block


class MetricType(StrEnum):
    """What a value of the metric is."""

    BOOL = "bool"
    FLOAT = "float"
    EDIT = "edit"
    """The fraction of the output that was kept, or the text as it ended."""
    COMMENT = "comment"
    DEMONSTRATION = "demonstration"


TEXT_TYPES = (MetricType.COMMENT, MetricType.DEMONSTRATION)
"""Kept as they are: words have no number."""


class Level(StrEnum):
    """What the feedback must name."""

    INTERACTION = "interaction"
    TRAJECTORY = "trajectory"


class Direction(StrEnum):
    """Which way is good."""

    HIGHER = "higher"
    LOWER = "lower"


class Aggregation(StrEnum):
    """How several values of one metric become one."""

    LAST = "last"
    FIRST = "first"
    MEAN = "mean"
    SUM = "sum"
    MAX = "max"
    MIN = "min"
    MAJORITY = "majority"


ONE_VOTE = (Aggregation.LAST, Aggregation.MEAN, Aggregation.MAJORITY)
"""Here a rater's later value replaces the earlier one; elsewhere every value counts."""

_OF_NUMBERS = {"weight", "default", "range", "veto_below", "aggregation", "optional", "closes"}
"""Fields that mean nothing for a text."""


class Metric(Block):
    """One declared metric."""

    signal: Signal | None = None
    """The implicit signal that it is: fills in the fields that are not given."""
    type: MetricType
    level: Level = Level.INTERACTION
    direction: Direction = Direction.HIGHER
    weight: Weight = 1.0
    """Its w in the reward; 0 = kept and counted, without effect."""
    aggregation: Aggregation = Aggregation.LAST
    window_s: float = Field(gt=0, le=366 * 86_400)
    """The interaction stays open at least this long."""
    closes: bool = False
    """The first answer ends the interaction: whatever comes after it in the log is late."""
    default: bool | Finite | None = None
    """The value when nobody answered; None = silence is no answer."""
    optional: bool = False
    """Silence leaves the metric out; False = without it there is no reward."""
    range: tuple[Finite, Finite] | None = None
    """Least and greatest value of a float (or of a sum); mapped to [0, 1]."""
    veto_below: Share | None = None
    """A normalised score below this makes the whole reward 0."""

    @property
    def is_scored(self) -> bool:
        """Whether it enters the reward."""
        return self.type not in TEXT_TYPES and (self.weight > 0 or self.veto_below is not None)

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that maps to [0, 1]."""
        return self.range or (0.0, 1.0)

    @property
    def has_one_vote(self) -> bool:
        """Whether a rater's later value replaces the earlier one."""
        return self.aggregation in ONE_VOTE

    @model_validator(mode="before")
    @classmethod
    def _filled_in(cls, declared: Any) -> Any:
        return with_preset(declared) if isinstance(declared, dict) else declared

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.type in TEXT_TYPES:
            self._check_text()
            return self
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range must rise, got {list(self.range)}")
        has_range = self.type is MetricType.FLOAT or self.aggregation is Aggregation.SUM
        if self.range is None and has_range:
            raise ValueError("a float or a sum needs `range = [least, greatest]`")
        if self.range is not None and not has_range:
            raise ValueError(f"a {self.type} has no range, unless it is summed")
        if self.default is not None and self.optional:
            raise ValueError("give either `default` or `optional`, not both")
        if self.closes and (self.level is Level.TRAJECTORY or not self.is_scored):
            raise ValueError("only a scored metric of an interaction can have `closes`")
        self._check_default()
        return self

    def describe(self) -> dict[str, Any]:
        """Return the metric as JSON, defaults included, as the metrics file could say it."""
        is_text = self.type in TEXT_TYPES
        return self.model_dump(
            mode="json", exclude_none=True, exclude=_OF_NUMBERS if is_text else None
        )

    def _check_text(self) -> None:
        for name in sorted(_OF_NUMBERS & self.model_fields_set):
            if name != "weight" or self.weight:
                raise ValueError(f"a {self.type} has no number, so `{name}` has no meaning")

    def _check_default(self) -> None:
        if self.default is None:
            return
        if isinstance(self.default, bool) != (self.type is MetricType.BOOL):
            raise ValueError(f"default {self.default!r} is no {self.type}")
        low, high = self.bounds
        if not low <= float(self.default) <= high:
            raise ValueError(f"default {self.default!r} lies outside {low} to {high}")


class VerifierSpec(Block):
    """One deterministic check that scores the interaction itself."""

    plugin: str = Field(min_length=1, max_length=128)
    """Name of an entry point in the group `tidemill.verifiers`."""
    weight: Weight = 1.0
    veto_below: Share | None = None


class MetricsFile(Block):
    """All declared metrics, and with them the reward."""

    metrics: dict[Name, Metric] = Field(min_length=1)
    verifiers: dict[Name, VerifierSpec] = Field(default_factory=dict)
    judges: dict[Name, JudgeSpec] = Field(default_factory=dict)

    @property
    def window_s(self) -> float:
        """How long an interaction stays open: the longest window."""
        return max(metric.window_s for metric in self.metrics.values())

    def describe(self) -> dict[str, Any]:
        """Return everything declared as JSON, with the hash that experiences carry."""
        return {
            "metrics": {name: metric.describe() for name, metric in self.metrics.items()},
            "verifiers": {
                name: verifier.model_dump(mode="json", exclude_none=True)
                for name, verifier in self.verifiers.items()
            },
            "judges": {
                name: judge.model_dump(mode="json", exclude_none=True)
                for name, judge in self.judges.items()
            },
            "reward_spec_hash": self.reward_spec_hash,
        }

    @cached_property
    def reward_spec_hash(self) -> str:
        """SHA-256 of everything that decides a reward, independent of the order in the file."""
        document = self.model_dump(mode="json", exclude_defaults=True)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @model_validator(mode="after")
    def _has_a_reward(self) -> Self:
        self._check_names()
        self._check_closing()
        weights = [m.weight for m in self.metrics.values() if m.is_scored]
        weights += [v.weight for v in self.verifiers.values()]
        weights += [j.weight for j in self.judges.values()]
        if not sum(weights) > 0:
            raise ValueError("no metric, verifier or judge has a weight: there would be no reward")
        return self

    def _check_closing(self) -> None:
        closing = sorted(name for name, metric in self.metrics.items() if metric.closes)
        slow = sorted(
            name
            for name, metric in self.metrics.items()
            if metric.level is Level.TRAJECTORY and metric.is_scored
        )
        if closing and slow:
            raise ValueError(
                f"{closing[0]} closes interactions, and so nobody would wait for {slow[0]}, which"
                " is declared for trajectories; take `closes` out"
            )

    def _check_names(self) -> None:
        # Each is a component of the reward, by its name.
        kinds: dict[str, Iterable[str]] = {
            "metric": self.metrics,
            "verifier": self.verifiers,
            "judge": self.judges,
        }
        owners: dict[str, str] = {}
        for kind, declared in kinds.items():
            for name in sorted(declared):
                if name in owners:
                    raise ValueError(f"a {owners[name]} and a {kind} share the name {name!r}")
                owners[name] = kind
