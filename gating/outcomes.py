"""From served interactions to one value for each subject, in the order of their closing. Pure.

Each unit (subject, else trajectory) counts once, with its first value, so nobody's votes outweigh
another's. A malformed output is a label of 0; silence and declared defaults are no labels.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemill.storage.evidence import ServedOutcome

_SILENT = "silent"


@dataclass(frozen=True, slots=True)
class ArmOutcomes:
    """What one arm showed; each sequence has one value for each unit."""

    acceptance: tuple[float, ...]
    """Rewards of labelled interactions, in [0, 1]."""
    malformed: tuple[float, ...]
    """1 = malformed, 0 = well formed; also of interactions that nobody answered."""
    num_tokens: tuple[float, ...]
    """Completion lengths."""
    num_units: int
    """Subjects that met the arm."""


def gather(outcomes: Sequence[ServedOutcome]) -> ArmOutcomes:
    """Return an arm's values, each unit's first of each kind.

    Raises:
        ValueError: a labelled interaction has no reward.
    """
    acceptance = _first_of_each((o.unit, _reward(o)) for o in outcomes if o.is_labelled)
    known = [o for o in outcomes if o.excluded_reason in (None, _SILENT)]
    malformed = _first_of_each((o.unit, float(o.state == "malformed")) for o in known)
    lengths = _first_of_each(
        (o.unit, float(o.num_tokens)) for o in outcomes if o.num_tokens is not None
    )
    return ArmOutcomes(acceptance, malformed, lengths, len({o.unit for o in outcomes}))


def _reward(outcome: ServedOutcome) -> float:
    if outcome.reward is None:
        raise ValueError(f"a {outcome.state} interaction has no reward; is its experience gone?")
    return outcome.reward


def _first_of_each(values: Iterable[tuple[str, float]]) -> tuple[float, ...]:
    first: dict[str, float] = {}
    for unit, value in values:
        first.setdefault(unit, value)
    return tuple(first.values())
