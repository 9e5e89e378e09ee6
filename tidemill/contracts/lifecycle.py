"""The life of a policy version: one table of legal moves.

candidate -> challenger -> champion -> retired -> champion (by rollback only)
candidate | challenger -> rejected
"""

from enum import StrEnum

from tidemill.errors import IllegalTransitionError


class PolicyStatus(StrEnum):
    """Where a policy version stands; the values are the stored strings."""

    CANDIDATE = "candidate"
    """Published, unproven."""
    CHALLENGER = "challenger"
    """Passed the offline suite; serves the canary's share of subjects."""
    CHAMPION = "champion"
    """Serves everybody else; at most one for each (model, tenant)."""
    RETIRED = "retired"
    """Was champion once; the target of a rollback."""
    REJECTED = "rejected"
    """Will never serve."""


class Move(StrEnum):
    """Why a version changes its status."""

    START_CANARY = "start_canary"
    PROMOTE = "promote"
    REJECT = "reject"
    SUPERSEDE = "supersede"
    """It leaves undecided (a newer candidate, an expired canary, another champion): no fault of
    its own, so its learner goes on."""
    RETIRE = "retire"
    ROLL_BACK = "roll_back"
    """The champion leaves because it does harm."""
    RESTORE = "restore"
    """The previous champion returns."""


LEGAL_MOVES: dict[tuple[PolicyStatus, Move], PolicyStatus] = {
    (PolicyStatus.CANDIDATE, Move.START_CANARY): PolicyStatus.CHALLENGER,
    # The first champion has nobody to be compared with, and a person may force a promotion.
    (PolicyStatus.CANDIDATE, Move.PROMOTE): PolicyStatus.CHAMPION,
    (PolicyStatus.CANDIDATE, Move.REJECT): PolicyStatus.REJECTED,
    (PolicyStatus.CANDIDATE, Move.SUPERSEDE): PolicyStatus.REJECTED,
    (PolicyStatus.CHALLENGER, Move.PROMOTE): PolicyStatus.CHAMPION,
    (PolicyStatus.CHALLENGER, Move.REJECT): PolicyStatus.REJECTED,
    (PolicyStatus.CHALLENGER, Move.SUPERSEDE): PolicyStatus.REJECTED,
    (PolicyStatus.CHAMPION, Move.RETIRE): PolicyStatus.RETIRED,
    (PolicyStatus.CHAMPION, Move.ROLL_BACK): PolicyStatus.RETIRED,
    (PolicyStatus.RETIRED, Move.RESTORE): PolicyStatus.CHAMPION,
}


def next_status(status: PolicyStatus, move: Move) -> PolicyStatus:
    """Return where a move leads.

    Raises:
        IllegalTransitionError: the table has no such move.
    """
    target = LEGAL_MOVES.get((status, move))
    if target is None:
        legal = ", ".join(sorted(m for s, m in LEGAL_MOVES if s is status)) or "none"
        raise IllegalTransitionError(
            f"a {status} version cannot {move}; legal moves from {status}: {legal}"
        )
    return target


class Verdict(StrEnum):
    """What the gate says of a version."""

    PROMOTE = "promote"
    HOLD = "hold"
    REJECT = "reject"
    ROLL_BACK = "roll_back"
