"""What happens in a run, by its seed: how much is sent, and what dies when."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

KILL, PAUSE, RESTART = "kill", "pause", "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The size of a run."""

    seed: int
    num_feedback: int
    """Ids; repeats and bodies in conflict come on top."""
    num_kills: int
    """Of processes, in all."""
    num_restarts: int
    """Of each server; workers are paused as often."""
    num_poison: int
    """Mutated events, past the API."""
    patience_s: float = 300.0
    """As long without progress is a stall."""

    @property
    def max_waiting(self) -> int:
        """Records that may wait for the workers: so each kill meets work in progress."""
        return max(500, 2 * self.num_feedback // max(1, self.num_kills))


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """Something that dies, or stops for a while."""

    at: float
    """When: the share of all feedback that is over by then."""
    what: str
    """KILL, PAUSE or RESTART."""
    target: str
    """A process, or a server that is started again."""


def plan_faults(
    plan: Plan, *, processes: Sequence[str], workers: Sequence[str], servers: Sequence[str]
) -> list[Fault]:
    """Return all faults in their order, each kind spread evenly over the run.

    Every process is killed as often as any other, some workers are paused, and servers restart.
    """
    rng = random.Random(plan.seed)
    kills = zip(_moments(rng, plan.num_kills), _turns(rng, processes), strict=False)
    pauses = zip(_moments(rng, plan.num_restarts), _turns(rng, workers), strict=False)
    faults = [Fault(at, KILL, target) for at, target in kills]
    faults += [Fault(at, PAUSE, target) for at, target in pauses]
    for server in servers:
        faults += [Fault(at, RESTART, server) for at in _moments(rng, plan.num_restarts)]
    return sorted(faults)


def _moments(rng: random.Random, number: int) -> list[float]:
    return [(turn + rng.uniform(0.1, 0.9)) / number for turn in range(number)]


def _turns(rng: random.Random, names: Sequence[str]) -> Iterator[str]:
    """Yield each name as often as any other, in an order that nobody can foresee."""
    while True:
        yield from rng.sample(names, len(names))
