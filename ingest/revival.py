"""Feedback that had expired and comes again lives anew from that record on. Pure.

Whether a feedback had expired is decided by append times, so a replay revives the same ones, no
matter whether the repeat is read before or after the expiry was written down.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from ingest.joining import Claim, FeedbackState, settle
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.feedback import FeedbackKey
from tidemill.storage.repeats import Delivery

Repeats = Mapping[FeedbackKey, Sequence[Delivery]]


class Life(NamedTuple):
    """What became of one feedback."""

    claim: Claim
    """As it stands now: at its last record that had something to wait for."""
    state: FeedbackState
    outlived: tuple[Claim, ...] = ()
    """The records at which it stood and expired before, oldest first."""


def settle_lives(
    claims: Iterable[Claim],
    served_at: Sequence[datetime],
    metrics: MetricsFile,
    *,
    repeats: Repeats,
    unmatched_after_s: float,
) -> dict[FeedbackKey, Life]:
    """Return what became of every feedback on one target, given its repeated deliveries."""
    current = {claim.key: claim for claim in claims}
    outlived: dict[FeedbackKey, tuple[Claim, ...]] = {}
    while True:
        states = settle(current.values(), served_at, metrics)
        risen = _risen(current, states, repeats, unmatched_after_s)
        if not risen:
            return {
                key: Life(claim, states[key], outlived.get(key, ()))
                for key, claim in current.items()
            }
        for key, claim in risen.items():
            outlived[key] = (*outlived.get(key, ()), current[key])
            current[key] = claim


def _risen(
    current: Mapping[FeedbackKey, Claim],
    states: Mapping[FeedbackKey, FeedbackState],
    repeats: Repeats,
    unmatched_after_s: float,
) -> dict[FeedbackKey, Claim]:
    dead = [key for key in current if states[key] is FeedbackState.DEAD_LETTERED]
    again = {
        key: revive(current[key], repeats.get(key, ()), unmatched_after_s=unmatched_after_s)
        for key in dead
    }
    return {key: claim for key, claim in again.items() if claim is not None}


def revive(claim: Claim, repeats: Iterable[Delivery], *, unmatched_after_s: float) -> Claim | None:
    """Return an expired feedback at its first record after the expiry; None = there is none."""
    later = min((one for one in repeats if one.appended_at > claim.expires_at), default=None)
    if later is None:
        return None
    return claim._replace(
        appended_at=later.appended_at,
        partition=later.partition,
        offset=later.offset,
        expires_at=later.appended_at + timedelta(seconds=unmatched_after_s),
        state=FeedbackState.PENDING,
    )
