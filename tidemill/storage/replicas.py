"""Swaps as each replica saw them: what it serves since when, and what each swap cost."""

from dataclasses import dataclass, replace

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tidemill.storage.tables import ReplicaVersionRow

STARTED = "started"
"""The first version after a start: nobody was served before, so it is no swap."""
FLIPPED = "flipped"
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SwapFigures:
    """Swaps of one model over all replicas."""

    num_flipped: int
    num_refused: int
    max_pause_ms: float | None
    """None without a swap."""
    min_in_flight: int | None


def insert_replica_version(session: Session, row: ReplicaVersionRow) -> None:
    """Record one start, swap or refusal."""
    session.add(row)


def fetch_replica_versions(
    session: Session, *, model: str, tenant: str, limit: int = 100
) -> list[ReplicaVersionRow]:
    """Return the newest records, newest first."""
    query = (
        select(ReplicaVersionRow)
        .where(ReplicaVersionRow.model == model, ReplicaVersionRow.tenant == tenant)
        .order_by(ReplicaVersionRow.id.desc())
        .limit(limit)
    )
    return list(session.scalars(query))


def fetch_swap_figures(session: Session, *, model: str, tenant: str) -> SwapFigures:
    """Return how many swaps there were and what they cost at most."""
    query = (
        select(
            ReplicaVersionRow.outcome,
            func.count(),
            func.max(ReplicaVersionRow.pause_ms),
            func.min(ReplicaVersionRow.in_flight),
        )
        .where(ReplicaVersionRow.model == model, ReplicaVersionRow.tenant == tenant)
        .group_by(ReplicaVersionRow.outcome)
    )
    found = {
        outcome: SwapFigures(count, 0, max_pause_ms, min_in_flight)
        for outcome, count, max_pause_ms, min_in_flight in session.execute(query)
    }
    nothing = SwapFigures(0, 0, None, None)
    num_refused = found.get(REFUSED, nothing).num_flipped
    return replace(found.get(FLIPPED, nothing), num_refused=num_refused)
