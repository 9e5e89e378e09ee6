"""The parts of this benchmark, and the bars of those that are not measured."""

from collections.abc import Collection, Mapping
from typing import Literal, Protocol

from benchmarks.figures import Target, judge
from benchmarks.harness import Rounds
from benchmarks.ingest import api, freshness, join, mlflow_peer
from benchmarks.ingest.column import Column, Servers

PARTS = ("api", "mlflow", "join", "freshness")
"""In the order in which they are measured."""

_UNMEASURED: tuple[tuple[str, float, Literal["least", "most"]], ...] = (
    ("growth/memory/change", 0.10, "most"),
    ("growth/cost/change", 0.15, "most"),
)


class Part(Protocol):
    """One question, on one column."""

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept."""
        ...

    def figures(self) -> Mapping[str, float | None]:
        """Return what came out over all rounds."""
        ...

    def targets(self) -> list[Target]:
        """Hold the figures against what is asked."""
        ...


def build(name: str, column: Column, rounds: Rounds, *, is_quick: bool) -> Part | None:
    """Return a part; None = it has no short form."""
    if name == "api":
        return api.ApiPart(column, api.QUICK if is_quick else api.FULL, rounds)
    if name == "mlflow":
        size = mlflow_peer.QUICK if is_quick else mlflow_peer.FULL
        return mlflow_peer.MlflowPart(column, size, rounds)
    if name == "join":
        return join.JoinPart(column, join.QUICK if is_quick else join.FULL, rounds)
    size_of_freshness = freshness.QUICK if is_quick else freshness.FULL
    return freshness.FreshnessPart(column, size_of_freshness, rounds)


def unmeasured(measured: Collection[str]) -> list[Target]:
    """Return the targets that a whole run has left out: none of them is met."""
    return [
        judge(name, None, bound, side=side)
        for name, bound, side in _UNMEASURED
        if name not in measured
    ]
