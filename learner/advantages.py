"""Baselines and advantages. Pure: numbers in, numbers out.

Live data has one rollout for each context: the baseline is the context's own history, shrunk
towards the mean of the rest of the batch. Simulated data comes in groups: their mean is removed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tidemill.errors import EstimatorError

MIN_STD = 0.1
"""Advantages are never divided by less: a batch of nearly equal rewards says little."""


@dataclass(frozen=True, slots=True)
class ContextHistory:
    """What a context's earlier rewards amount to."""

    weight: float
    """How many rewards they count for, forgetting included."""
    mean: float


@dataclass(frozen=True, slots=True)
class BaselineState:
    """Histories by context, those longest without a reward first."""

    histories: MappingProxyType[str, ContextHistory]

    @classmethod
    def empty(cls) -> "BaselineState":
        """No history at all."""
        return cls(MappingProxyType({}))


def compute_leave_one_out_means(rewards: Sequence[float]) -> list[float]:
    """Return for each reward the mean of the others: (sum - r_i) / (B - 1).

    Raises:
        EstimatorError: fewer than two rewards.
    """
    if len(rewards) < 2:
        raise EstimatorError(
            f"a leave-one-out mean needs at least two rewards, got {len(rewards)}; wait for more"
        )
    total = math.fsum(rewards)
    return [(total - reward) / (len(rewards) - 1) for reward in rewards]


def compute_shrunk_baselines(
    state: BaselineState,
    contexts: Sequence[str],
    rewards: Sequence[float],
    *,
    prior_weight: float,
) -> list[float]:
    """Return b_i = (n_c m_c + w l_i) / (n_c + w).

    n_c, m_c: weight and mean of the context's history; l_i: leave-one-out mean; w: prior weight.

    Raises:
        EstimatorError: fewer than two rewards.
    """
    baselines = []
    means = compute_leave_one_out_means(rewards)
    for context, mean in zip(contexts, means, strict=True):
        history = state.histories.get(context, ContextHistory(0.0, 0.0))
        weighted = history.weight * history.mean + prior_weight * mean
        baselines.append(weighted / (history.weight + prior_weight))
    return baselines


def update_baseline(
    state: BaselineState,
    contexts: Sequence[str],
    rewards: Sequence[float],
    *,
    forgetting: float,
    max_contexts: int,
) -> BaselineState:
    """Return the state after these rewards: n <- f n + 1, m <- (f n m + r) / (f n + 1).

    To be called after the rewards were scored, once for each: a reward never enters its own
    baseline.
    """
    histories = dict(state.histories)
    for context, reward in zip(contexts, rewards, strict=True):
        # Taken out and put back, so that the order is by last reward.
        old = histories.pop(context, ContextHistory(0.0, 0.0))
        kept = forgetting * old.weight
        histories[context] = ContextHistory(kept + 1, (kept * old.mean + reward) / (kept + 1))
    excess = len(histories) - max_contexts
    for context in list(histories)[: max(excess, 0)]:
        del histories[context]
    return BaselineState(MappingProxyType(histories))


def scale_by_std(advantages: Sequence[float]) -> list[float]:
    """Return the advantages divided by max(their standard deviation, MIN_STD); none is centred."""
    if not advantages:
        return []
    mean = math.fsum(advantages) / len(advantages)
    variance = math.fsum((a - mean) ** 2 for a in advantages) / len(advantages)
    divisor = max(math.sqrt(variance), MIN_STD)
    return [a / divisor for a in advantages]


@dataclass(frozen=True, slots=True)
class GroupAdvantages:
    """Advantages of rollouts in groups, and what carries no signal."""

    advantages: dict[int, float]
    """By position; those of dropped groups are absent."""
    num_zero_variance_groups: int


def compute_group_advantages(groups: Sequence[str], rewards: Sequence[float]) -> GroupAdvantages:
    """Return A_i = r_i - mean of its group; no division by std (Liu et al. 2025, Dr. GRPO).

    Groups whose rewards are all equal carry no signal: dropped and counted.

    Raises:
        EstimatorError: a group of one, on which the estimator is not defined.
    """
    members: dict[str, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    advantages: dict[int, float] = {}
    num_dropped = 0
    for group, positions in members.items():
        values = [rewards[position] for position in positions]
        if len(values) == 1:
            raise EstimatorError(
                f"group {group!r} has one rollout; a group estimator needs at least two: use the "
                "live baseline for single rollouts"
            )
        if max(values) == min(values):
            num_dropped += 1
            continue
        mean = math.fsum(values) / len(values)
        advantages |= {p: v - mean for p, v in zip(positions, values, strict=True)}
    return GroupAdvantages(advantages, num_dropped)
