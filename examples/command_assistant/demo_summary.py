"""What the demo reached, against its goals. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from examples.command_assistant.demo_settings import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """Policy versions by what became of them."""

    published: int
    promoted: int
    """By the gate, out of a canary, while users talked."""
    rejected: int
    rolled_back: int


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure that has to hold."""

    name: str
    value: float | int | bool | None
    target: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Everything measured in one demo; the fields of `summary.json` but the goals."""

    seed: int
    base: str
    wall_s: float
    requests: int
    failed_requests: int
    feedback_sent: int
    feedback_events_trained: int
    acceptance_before: float
    acceptance_after: float
    versions: Versions
    max_swap_pause_ms: float | None
    in_flight_at_swap_min: int | None
    ledger_balanced: bool


def judge(figures: Figures, variant: Variant) -> list[Goal]:
    """Return every goal of a variant with its figure."""
    wall_s, versions = figures.wall_s, figures.versions
    return [
        *_acceptance_goals(figures, variant),
        _at_least("versions promoted", versions.promoted, variant.min_promoted),
        *(
            (
                _at_least("versions rejected", versions.rejected, 1),
                _at_least("versions rolled back", versions.rolled_back, 1),
            )
            if variant.has_drills
            else ()
        ),
        Goal("failed_requests", figures.failed_requests, "0", figures.failed_requests == 0),
        _at_least("in_flight_at_swap_min", figures.in_flight_at_swap_min, 8),
        Goal("ledger_balanced", figures.ledger_balanced, "true", figures.ledger_balanced),
        Goal("wall_s", wall_s, f"<= {variant.limit_s:g}", wall_s <= variant.limit_s),
    ]


def _acceptance_goals(figures: Figures, variant: Variant) -> list[Goal]:
    before, after = figures.acceptance_before, figures.acceptance_after
    if variant.min_gain is not None:
        return [_at_least("acceptance gained", round(after - before, 4), variant.min_gain)]
    return [
        Goal("acceptance_before", before, "0.3 to 0.5", 0.3 <= before <= 0.5),
        _at_least("acceptance_after", after, 0.8),
    ]


def summary(figures: Figures, goals: list[Goal]) -> dict[str, Any]:
    """Return the document of `summary.json`."""
    return {**asdict(figures), "goals": [asdict(goal) for goal in goals]}


def _at_least(name: str, value: float | int | None, target: float) -> Goal:
    return Goal(name, value, f">= {target:g}", value is not None and value >= target)
