"""Judges as declared: which model is asked, what it is asked, and how its votes count.

Where the model is reached, and how long it may take, decides no reward: that is a setting of the
installation (`ingest.judge`), so that it stays out of the reward-spec hash.
"""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from tidemill.rewards.bounds import Name, Share, Weight
from tidemill.settings import Block


class VoteAggregation(StrEnum):
    """How several votes on one item become one score."""

    MEDIAN = "median"
    MEAN = "mean"


class RubricItem(Block):
    """One question, asked alone."""

    question: str = Field(min_length=1, max_length=4096)
    """What the judge is asked about the answer; more must be better."""
    weight: Weight = 1.0
    """Its w in the judge's score."""
    veto_below: Share | None = None
    """An item that scores below this makes the judge's whole score 0."""


class JudgeSpec(Block):
    """A language model that scores interactions by a rubric, item by item."""

    model: str = Field(min_length=1, max_length=256)
    """The name that the endpoint knows."""
    weight: Weight = 1.0
    veto_below: Share | None = None
    votes: int = Field(default=1, ge=1, le=15)
    """How often each item is asked."""
    aggregation: VoteAggregation = VoteAggregation.MEDIAN
    temperature: float = Field(default=0.0, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int = Field(default=512, ge=16, le=32_768)
    """Room for the judge's answer to one question."""
    items: dict[Name, RubricItem] = Field(min_length=1, max_length=64)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not sum(item.weight for item in self.items.values()) > 0:
            raise ValueError("no item has a weight: the judge would have no score")
        if self.votes > 1 and self.temperature == 0:
            raise ValueError(f"{self.votes} votes at temperature 0 are one vote; raise temperature")
        return self
