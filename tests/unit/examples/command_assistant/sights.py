"""Releases as the demo sees them, made of moves alone."""

from datetime import UTC, datetime

from examples.command_assistant.demo_watch import Sight
from tidemill.contracts.lifecycle import Move, PolicyStatus
from tidemill.registry import PolicyRecord, Transition
from tidemill.storage.replicas import SwapFigures

STATUS_AFTER = {
    Move.PROMOTE: PolicyStatus.CHAMPION,
    Move.REJECT: PolicyStatus.REJECTED,
    Move.SUPERSEDE: PolicyStatus.REJECTED,
    Move.ROLL_BACK: PolicyStatus.RETIRED,
}


def sight_of(*moves: tuple[str, Move], candidate: str | None = None) -> Sight:
    """Return what the demo sees after moves; live versions start with v9, all others are drills.

    `candidate` names one that has not moved yet.
    """
    status = {version: STATUS_AFTER[move] for version, move in moves}
    if candidate is not None:
        status.setdefault(candidate, PolicyStatus.CANDIDATE)
    records = tuple(
        PolicyRecord(
            version=version,
            digest="0" * 64,
            base_digest="0" * 64,
            status=status[version],
            provenance={"origin": "live" if version.startswith("v9") else "drill"},
        )
        for version in sorted(status)
    )
    transitions = tuple(
        Transition(
            version=version,
            move=move,
            from_status=PolicyStatus.CHALLENGER,
            to_status=PolicyStatus.CHAMPION,
            reason="",
            actor="gate",
            at=datetime(2026, 1, 1, tzinfo=UTC),
        )
        for version, move in moves
    )
    return Sight(records, transitions, SwapFigures(0, 0, None, None))
