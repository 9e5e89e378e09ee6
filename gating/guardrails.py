"""Guardrails: what a version must not spoil, each an exact test in both directions. Pure.

A guardrail holds when it is proven that the version stays within the margin (non-inferiority), is
broken when it is proven that it does not, and is undecided before: undecided never promotes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from gating.betting import MARGIN_BETS, bet_against_at_most
from gating.pairing import Pairs, pair_outcomes

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
    """Mean of the champion's side, lengths capped; 0 without pairs."""
    challenger: float
    margin: float
    num_pairs: int
    log_e_holds: float
    log_e_broken: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthRule:
    """What the guardrail on completion length allows."""

    cap: int
    """Longer completions (tokens) count as this long: bounded values make the test exact."""
    tolerance: float
    """Largest change of the mean, as a fraction of the champion's, up or down."""
    alpha: float


def check_malformed(pairs: Pairs, *, margin: float, alpha: float) -> Guardrail:
    """Test that the malformed-call rate rises by at most a margin; outcomes are 0 or 1."""
    slack_n = (margin - pairs.differences) / (1 + margin)
    return _test(MALFORMED_RATE, pairs, slack_n, margin=margin, alpha=alpha)


def check_length(
    champion: Sequence[float], challenger: Sequence[float], *, share: float, rule: LengthRule
) -> tuple[Guardrail, Guardrail]:
    """Test that mean length stays within (1 +- tolerance) of the champion's; lengths in tokens.

    Raises:
        ValueError: the share is not between 0 and 1, or a length is NaN.
    """
    # Each length by itself, before the blocks: the larger arm's means would rarely meet the cap
    # that the smaller arm's single lengths meet, and equal arms would look different.
    pairs = pair_outcomes(
        [min(length, rule.cap) for length in champion],
        [min(length, rule.cap) for length in challenger],
        share=share,
    )
    longer_n = (pairs.champion - pairs.challenger / (1 + rule.tolerance)) / rule.cap
    shorter_n = (pairs.challenger - pairs.champion * (1 - rule.tolerance)) / rule.cap
    return (
        _test(LONGER, pairs, longer_n, margin=rule.tolerance, alpha=rule.alpha),
        _test(SHORTER, pairs, shorter_n, margin=rule.tolerance, alpha=rule.alpha),
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
