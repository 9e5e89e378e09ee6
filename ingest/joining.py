"""Which feedback belongs to which interaction, and in what state it is. Pure.

Everything is decided by append times and log order, so a replay decides the same. States are
computed anew for a whole target whenever something about it arrives; that makes the order in which
interaction and feedback are read irrelevant.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from tidemill.rewards.metrics import Metric, MetricsFile
from tidemill.rewards.votes import is_in_window, is_late


class FeedbackState(StrEnum):
    """Where a feedback stands in the ledger; the values are the stored strings."""

    JOINED = "joined"
    SUPERSEDED = "superseded"
    """The same rater answered again."""
    PENDING = "pending"
    """Its interaction has not come yet."""
    LATE = "late"
    """Appended after the window, or after the answer that closed; kept and counted."""
    DEAD_LETTERED = "dead_lettered"
    ERASED = "erased"


FINAL = frozenset({FeedbackState.DEAD_LETTERED, FeedbackState.ERASED})


class Claim(NamedTuple):
    """One feedback, as far as its state is concerned."""

    tenant: str
    feedback_id: str
    target_id: str
    metric: str
    rater: str | None
    appended_at: datetime
    partition: int
    offset: int
    expires_at: datetime
    state: FeedbackState

    @property
    def key(self) -> tuple[str, str]:
        """What names it."""
        return (self.tenant, self.feedback_id)

    @property
    def target(self) -> tuple[str, str]:
        """What names the interaction or trajectory that it is about."""
        return (self.tenant, self.target_id)


def settle(
    claims: Iterable[Claim], served_at: Sequence[datetime], metrics: MetricsFile
) -> dict[tuple[str, str], FeedbackState]:
    """Return the state of every feedback on one target.

    Args:
        claims: all feedback on the target, in any order.
        served_at: append times of the target's interactions; empty = none is known yet.
        metrics: the declared metrics, for windows and repeats.
    """
    states: dict[tuple[str, str], FeedbackState] = {}
    newest: dict[tuple[str, str], Claim] = {}
    is_closed = False
    for claim in sorted(claims, key=lambda c: (c.appended_at, c.partition, c.offset)):
        metric = metrics.metrics.get(claim.metric)
        if claim.state in FINAL or metric is None:
            states[claim.key] = claim.state
            continue
        state = _state(claim, served_at, metric)
        if is_closed and state is FeedbackState.JOINED:
            state = FeedbackState.LATE
        is_closed |= state is FeedbackState.JOINED and metric.closes
        states[claim.key] = state
        if state is FeedbackState.JOINED and metric.has_one_vote and claim.rater is not None:
            earlier = newest.get((claim.metric, claim.rater))
            if earlier is not None:
                states[earlier.key] = FeedbackState.SUPERSEDED
            newest[claim.metric, claim.rater] = claim
    return states


def _state(claim: Claim, served_at: Sequence[datetime], metric: Metric) -> FeedbackState:
    if not served_at:
        return FeedbackState.PENDING
    if any(is_in_window(claim, metric, served_at=moment) for moment in served_at):
        return FeedbackState.JOINED
    if any(is_late(claim, metric, served_at=moment) for moment in served_at):
        return FeedbackState.LATE
    # Its interactions came after it had expired, whether or not that was written down by then.
    return FeedbackState.DEAD_LETTERED
