"""Guardrails: what a version must not spoil, each an exact test in both directions. Pure.

A guardrail holds when it is proven that the version stays within the margin (non-inferiority), is
broken when it is proven that it does not, and is undecided before: undecided never promotes.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from gating.betting import MARGIN_BETS, bet_against_at_most
from gating.pairing import Pairs

MALFORMED_RATE = "malformed_rate"
LONGER = "length_longer"
SHORTER = "length_shorter"


class GuardrailState(StrEnum):
    """What is proven."""

    HOLDS = "holds"
    UNDECIDED = "undecided"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guardrail:
    """One guardrail with its figures."""

    name: str
    state: GuardrailState
    champion: float
    """Mean of the champion's side; 0 without pairs."""
    challenger: float
    margin: float
    num_pairs: int
    log_e_holds: float
    log_e_broken: float


def check_malformed(pairs: Pairs, *, margin: float, alpha: float) -> Guardrail:
    """Test that the malformed-call rate rises by at most a margin; outcomes are 0 or 1."""
    slack_n = (margin - pairs.differences) / (1 + margin)
    return _test(MALFORMED_RATE, pairs, slack_n, margin=margin, alpha=alpha)


def check_length(
    pairs: Pairs, *, cap: int, tolerance: float, alpha: float
) -> tuple[Guardrail, Guardrail]:
    """Test that mean length stays within (1 +- tolerance) of the champion's; outcomes in tokens.

    Lengths above the cap count as the cap: bounded values make the test exact.
    """
    champion_n = np.minimum(pairs.champion, cap) / cap
    challenger_n = np.minimum(pairs.challenger, cap) / cap
    longer_n = champion_n - challenger_n / (1 + tolerance)
    shorter_n = challenger_n - champion_n * (1 - tolerance)
    return (
        _test(LONGER, pairs, longer_n, margin=tolerance, alpha=alpha),
        _test(SHORTER, pairs, shorter_n, margin=tolerance, alpha=alpha),
    )


def _test(
    name: str, pairs: Pairs, slack_n: NDArray[np.float64], *, margin: float, alpha: float
) -> Guardrail:
    """Weigh slack in [-1, 1], whose mean is positive exactly when the guardrail holds."""
    holds = bet_against_at_most(slack_n, bets=MARGIN_BETS)
    broken = bet_against_at_most(-slack_n)
    state = GuardrailState.UNDECIDED
    if broken.rejects(alpha):
        state = GuardrailState.BROKEN
    elif holds.rejects(alpha):
        state = GuardrailState.HOLDS
    return Guardrail(
        name=name,
        state=state,
        champion=float(pairs.champion.mean()) if len(pairs) else 0.0,
        challenger=float(pairs.challenger.mean()) if len(pairs) else 0.0,
        margin=margin,
        num_pairs=len(pairs),
        log_e_holds=holds.max_log_e_value,
        log_e_broken=broken.max_log_e_value,
    )
