"""When a learner gives up its weights and starts again from the champion. Pure."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum

from learner.staleness import compute_staleness, is_over_stale
from tidemill.contracts.lifecycle import Move


class ResetReason(StrEnum):
    """Why; the values are stored with the step."""

    FIRST_CHAMPION = "first_champion"
    REJECTED = "rejected"
    """A verdict rejected a version of this lineage."""
    ROLLED_BACK = "rolled_back"
    """A version of this lineage, or an ancestor, left because it did harm."""
    SUCCEEDED = "succeeded"
    """A version that this learner published in an earlier lineage became champion."""
    OVER_STALE = "over_stale"
    """Even the newest live data would pass the staleness bound."""


def find_judged(
    moves: Iterable[tuple[str, str]],
    *,
    own: Collection[str],
    former: Collection[str],
    ancestors: Collection[str],
) -> ResetReason | None:
    """Return what the registry's moves (version, move) mean for a lineage; None = nothing.

    A superseded version was not judged: learning goes on.

    Args:
        moves: in their order.
        own: what the lineage published.
        former: what earlier lineages of the same learner published.
        ancestors: what the lineage started from, back to the base.
    """
    for version, move in moves:
        if move == Move.REJECT and version in own:
            return ResetReason.REJECTED
        if move == Move.ROLL_BACK and (version in own or version in ancestors):
            return ResetReason.ROLLED_BACK
        if move == Move.PROMOTE and version in former and version not in ancestors:
            return ResetReason.SUCCEEDED
    return None


def is_live_data_over_stale(
    live_steps: Iterable[int], *, learner_step: int, num_uses: int, max_staleness: int
) -> bool:
    """Tell whether data from every version in traffic would pass the bound."""
    newest = max(live_steps, default=learner_step)
    staleness = compute_staleness(learner_step=learner_step, version_step=newest)
    return is_over_stale(staleness, num_uses=num_uses, max_staleness=max_staleness)


def find_ancestors(version: str, parents: Mapping[str, str | None]) -> set[str]:
    """Return a version and all versions that it was trained from."""
    found: set[str] = set()
    current: str | None = version
    while current is not None and current not in found:
        found.add(current)
        current = parents.get(current)
    return found
