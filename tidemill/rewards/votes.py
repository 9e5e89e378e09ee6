"""Votes: feedback as the reward sees it, in log order. Pure.

Log order is append time, then partition, then offset. The client's own time never counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.contracts.events import FeedbackValue
from tidemill.rewards.metrics import Metric, MetricsFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One feedback within an interaction's window or outside it."""

    metric: str
    rater: str | None
    value: FeedbackValue
    appended_at: datetime
    partition: int
    offset: int
    expires_at: datetime
    """An interaction that was served after this is not meant any more."""

    @property
    def order(self) -> tuple[datetime, int, int]:
        """Its place in the log."""
        return (self.appended_at, self.partition, self.offset)


class Timed(Protocol):
    """Whatever came at a time and waited for its interaction until another."""

    @property
    def appended_at(self) -> datetime:
        """When it was appended to the log."""

    @property
    def expires_at(self) -> datetime:
        """An interaction that was served after this is not meant any more."""


def is_in_window(vote: Timed, metric: Metric, *, served_at: datetime) -> bool:
    """Tell whether a vote is about an interaction served then, and came in time."""
    window = timedelta(seconds=metric.window_s)
    return served_at <= vote.expires_at and vote.appended_at <= served_at + window


def is_late(vote: Timed, metric: Metric, *, served_at: datetime) -> bool:
    """Tell whether a vote is about an interaction served then, but came after its window."""
    window = timedelta(seconds=metric.window_s)
    return served_at <= vote.expires_at and vote.appended_at > served_at + window


def add_vote(chosen: dict[str, list[Vote]], vote: Vote, metric: Metric) -> None:
    """Let a vote count after those before it in the log: it may replace its rater's last one."""
    earlier = chosen.setdefault(vote.metric, [])
    if metric.has_one_vote and vote.rater is not None:
        earlier[:] = [other for other in earlier if other.rater != vote.rater]
    earlier.append(vote)


def votes_that_count(
    votes: Iterable[Vote], metrics: MetricsFile, *, served_at: datetime
) -> dict[str, list[Vote]]:
    """Return the votes of each scored metric that decide the reward, in log order.

    Args:
        votes: whatever was said of the interaction, in any order.
        metrics: the declared metrics.
        served_at: append time of the interaction; a metric's window begins here.

    After the first answer of a metric that closes, nothing counts any more.
    """
    chosen: dict[str, list[Vote]] = {}
    for vote in sorted(votes, key=lambda vote: vote.order):
        metric = metrics.metrics.get(vote.metric)
        if metric is None or not metric.is_scored:
            continue
        if is_in_window(vote, metric, served_at=served_at):
            add_vote(chosen, vote, metric)
            if metric.closes:
                break
    return chosen
