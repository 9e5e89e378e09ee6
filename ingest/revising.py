"""What feedback that came late makes of an experience. Pure.

An experience is fixed once its windows are over. Each late feedback that would have changed its
reward becomes a revision: the reward as it is with that feedback and all before it in the log. Only
append times and log order decide, so a replay makes the same ones, whatever it reads first.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.contracts.experience import Experience, Outcome
from tidemill.rewards.composite import Reward, compute_reward
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.votes import Vote, add_vote, is_in_window, is_late, votes_that_count

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Revision:
    """The reward of an experience as one late vote leaves it."""

    vote: Vote
    reward: Reward


@dataclass(frozen=True, slots=True)
class Closed:
    """An experience and what its reward was made of beside feedback."""

    experience: Experience
    completion: str
    served_at: datetime
    """Append time of the interaction."""


def revise(
    closed: Closed,
    votes: Iterable[Vote],
    metrics: MetricsFile,
    *,
    places: Collection[Place] | None = None,
) -> list[Revision]:
    """Return the revisions of an experience, in log order.

    A malformed output stays at 0 whatever anybody says. An experience that was rewarded by another
    reward spec has none: both rewards would not mean the same.

    Args:
        closed: the experience.
        votes: all feedback on it and on its trajectory, in any order.
        metrics: the declared metrics.
        places: only the revisions of the votes that lie here; None = of all.
    """
    experience = closed.experience
    if experience.outcome is Outcome.MALFORMED:
        return []
    if experience.reward_spec_hash != metrics.reward_spec_hash:
        return []
    in_time, late = _apart(closed, votes, metrics)
    wanted = [index for index, vote in enumerate(late) if places is None or _place(vote) in places]
    if not wanted:
        return []
    rewards = _rewards_after(closed, in_time, late, metrics, of=_with_predecessors(wanted))
    standing = (experience.reward, experience.components)
    revisions: list[Revision] = []
    for index in wanted:
        before, after = rewards.get(index - 1), rewards.get(index)
        if after is not None and (after.value, after.components) != (
            standing if before is None else (before.value, before.components)
        ):
            revisions.append(Revision(late[index], after))
    return revisions


def _apart(
    closed: Closed, votes: Iterable[Vote], metrics: MetricsFile
) -> tuple[list[Vote], list[Vote]]:
    """Return the votes that came in time, and the scored ones that came late, in log order."""
    in_time: list[Vote] = []
    late: list[Vote] = []
    is_closed = False
    for vote in sorted(votes, key=lambda vote: vote.order):
        metric = metrics.metrics.get(vote.metric)
        if metric is None or not metric.is_scored:
            continue
        if is_in_window(vote, metric, served_at=closed.served_at):
            (late if is_closed else in_time).append(vote)
            is_closed |= metric.closes
        elif is_late(vote, metric, served_at=closed.served_at):
            late.append(vote)
    return in_time, late


def _with_predecessors(indices: Iterable[int]) -> set[int]:
    return {one for index in indices for one in (index - 1, index) if one >= 0}


def _rewards_after(
    closed: Closed,
    in_time: Sequence[Vote],
    late: Sequence[Vote],
    metrics: MetricsFile,
    *,
    of: Collection[int],
) -> Mapping[int, Reward]:
    """Return the reward after some of the late votes, by their index."""
    # Within a metric whatever was in time lies before whatever was late.
    chosen = votes_that_count(in_time, metrics, served_at=closed.served_at)
    stored = closed.experience.components
    checked = {name: stored[name] for name in (*metrics.verifiers, *metrics.judges)}
    rewards: dict[int, Reward] = {}
    for index, vote in enumerate(late):
        add_vote(chosen, vote, metrics.metrics[vote.metric])
        if index in of:
            reward = compute_reward(metrics, chosen, completion=closed.completion, checked=checked)
            if reward is not None:
                rewards[index] = reward
    return rewards


def _place(vote: Vote) -> Place:
    return (vote.partition, vote.offset)
