"""Which version a caller meets: sticky, recomputable, with its probability. Pure.

The unit (a subject, else a trajectory) and the canary's salt decide alone, so every replica agrees
without talking to the others, and a new salt shuffles all units anew.
"""

import hashlib
import hmac
from dataclasses import dataclass

from tidemill.contracts.events import Arm

_BITS = 53
"""A double holds every integer below 2^53 exactly."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The arm of one unit, and the chance that it came there."""

    arm: Arm
    probability: float


PINNED = Assignment(Arm.PINNED, 1.0)
"""The caller named the version: no chance was involved."""


def compute_position(unit: str, *, salt: str) -> float:
    """Return where a unit lies in [0, 1): HMAC-SHA256(salt, unit), its first 53 bits, / 2^53."""
    digest = hmac.new(salt.encode(), unit.encode(), hashlib.sha256).digest()
    return (int.from_bytes(digest[:8], "big") >> (64 - _BITS)) / (1 << _BITS)


def assign(unit: str, *, salt: str, challenger_share: float) -> Assignment:
    """Send a unit to the challenger when its position lies below the challenger's share.

    Raises:
        ValueError: the share is no share.
    """
    if not 0 <= challenger_share <= 1:
        raise ValueError(f"challenger_share must lie in [0, 1], got {challenger_share!r}")
    if compute_position(unit, salt=salt) < challenger_share:
        return Assignment(Arm.CHALLENGER, challenger_share)
    return Assignment(Arm.CHAMPION, 1 - challenger_share)
