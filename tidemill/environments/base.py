"""What an environment is: tasks to try, and a verifier that scores what came out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Split(StrEnum):
    """Which tasks: those to train on, or those kept for judging. They never overlap."""

    TRAIN = "train"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to ask of the policy."""

    task_id: str
    context: str
    """Key of the per-context baseline, e.g. the kind of task."""
    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    reference: Mapping[str, Any] = field(default_factory=dict)
    """What the verifier needs; the policy never sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the verifier says of one completion."""

    score: float
    """In [0, 1]."""
    components: Mapping[str, float]
    """Parts of the score, each in [0, 1]."""
    is_malformed: bool
    reason: str
    """Why the score is what it is, in a few words."""


class Environment(Protocol):
    """A product's copy. Deterministic: equal arguments give equal results."""

    @property
    def name(self) -> str:
        """Names it in evidence and provenance."""
        ...

    def tasks(self, split: Split, *, seed: int, count: int) -> list[Task]:
        """Return `count` tasks of a split."""
        ...

    def verify(self, task: Task, completion: str) -> Verification:
        """Score a completion text by declared rules; never calls the network or the policy."""
        ...
