"""The parts of this benchmark, in the order in which they are measured."""

from collections.abc import Callable, Mapping
from typing import Protocol

from benchmarks.figures import Target
from benchmarks.harness import Rounds
from benchmarks.ingest import api, freshness, growth, join, mlflow_peer
from benchmarks.ingest.column import Column, Servers


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


Build = Callable[[Column, Rounds], Part]

QUICK: Mapping[str, Build] = {
    "api": lambda column, rounds: api.ApiPart(column, api.QUICK, rounds),
    "mlflow": lambda column, rounds: mlflow_peer.MlflowPart(column, mlflow_peer.QUICK, rounds),
    "join": lambda column, rounds: join.JoinPart(column, join.QUICK, rounds),
    "freshness": lambda column, rounds: freshness.FreshnessPart(column, freshness.QUICK, rounds),
}
"""Growth has no short form: a million rows are the question."""

FULL: Mapping[str, Build] = {
    "api": lambda column, rounds: api.ApiPart(column, api.FULL, rounds),
    "mlflow": lambda column, rounds: mlflow_peer.MlflowPart(column, mlflow_peer.FULL, rounds),
    "join": lambda column, rounds: join.JoinPart(column, join.FULL, rounds),
    "freshness": lambda column, rounds: freshness.FreshnessPart(column, freshness.FULL, rounds),
    "growth": lambda column, rounds: growth.GrowthPart(column, growth.FULL, rounds),
}


def unmeasured(column: Column, *, is_quick: bool) -> list[Target]:
    """Return the targets that a whole run leaves out, as missed: no result may look complete."""
    return growth.bars(column, {}) if is_quick else []
