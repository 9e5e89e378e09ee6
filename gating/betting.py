"""Betting e-processes for the mean of bounded values: exact at any number of looks. Pure.

Under the hypothesis that the mean, given the past, is at most 0, each product of `1 + bet * value`
is a fair or losing game, so is the average over fixed bets, and by Ville's inequality it ever
reaches 1 / alpha with a probability of at most alpha. No approximation, no minimum sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bets:
    """Bets in (0, 1), and the share of the stake on each; fixed before anything is seen."""

    sizes: tuple[float, ...]
    weights: tuple[float, ...]
    """Sum to 1."""


LIFT_BETS = Bets((0.04, 0.12, 0.22, 0.38, 0.6), (0.08, 0.23, 0.23, 0.23, 0.23))
"""For differences of outcomes: near the best bets for lifts of 0.05 to 0.3, a little for less."""
MARGIN_BETS = Bets((0.25, 0.5, 0.95), (0.2, 0.3, 0.5))
"""For margins that both arms hold easily: small, nearly constant values want high bets."""

_CHUNK = 200_000
"""Values times grid points that are weighed at once."""


@dataclass(frozen=True, slots=True)
class EProcess:
    """Evidence against `mean <= 0` after some values; natural logarithms."""

    log_e_value: float
    """Now."""
    max_log_e_value: float
    """The highest so far, at least 0: a test may stop there."""
    num_values: int

    def rejects(self, alpha: float) -> bool:
        """Whether the hypothesis falls at a level, at this or any earlier look."""
        return bool(self.max_log_e_value >= -np.log(alpha))


def log_wealth(values: Sequence[float] | Floats, bets: Bets) -> Floats:
    """Return the log e-value after each value: [n].

    Args:
        values: in [-1, 1], in the order in which they came.
        bets: what is staked on each.

    Raises:
        ValueError: a value is out of range or NaN.
    """
    values_n = np.asarray(values, dtype=np.float64)
    if not np.all(np.abs(values_n) <= 1):  # also false for NaN
        odd = values_n[~(np.abs(values_n) <= 1)][0]
        raise ValueError(f"betting needs values in [-1, 1], got {odd}")
    log_wealth_nb = np.cumsum(np.log1p(np.multiply.outer(values_n, bets.sizes)), axis=0)
    return _log_mean_exp(log_wealth_nb, bets)


def bet_against_at_most(
    values: Sequence[float] | Floats, *, bound: float = 0.0, bets: Bets = LIFT_BETS
) -> EProcess:
    """Return the evidence that the mean of values in [-1, 1] is larger than a bound in (-1, 1).

    `(value - bound) / (1 + |bound|)` lies in [-1, 1] again.

    Raises:
        ValueError: a value is out of range or NaN.
    """
    values_n = np.asarray(values, dtype=np.float64)
    if values_n.size == 0:
        return EProcess(0.0, 0.0, 0)
    logs_n = log_wealth((values_n - bound) / (1 + abs(bound)), bets)
    return EProcess(float(logs_n[-1]), max(0.0, float(logs_n.max())), values_n.size)


def compute_interval(outcomes: Sequence[float], *, alpha: float = 0.05) -> tuple[float, float]:
    """Return a confidence sequence for the mean of outcomes in [0, 1]: right at every look.

    A mean stays in the interval while neither bets on higher nor bets on lower outcomes have
    reached 2 / alpha. Grid of 0.005, rounded outwards; (0, 1) without outcomes.

    Raises:
        ValueError: an outcome is out of range or NaN.
    """
    values_n = np.asarray(outcomes, dtype=np.float64)
    if not np.all((values_n >= 0) & (values_n <= 1)):
        raise ValueError("outcomes must lie in [0, 1]")
    if values_n.size == 0:
        return 0.0, 1.0
    values_u, repeats_u = np.unique(values_n, return_counts=True)
    counts_u = repeats_u.astype(np.float64)
    limit = np.log(2 / alpha)
    grid_m = np.linspace(0.0, 1.0, 201)
    chunks = np.array_split(grid_m, max(1, values_u.size * grid_m.size // _CHUNK))
    inside_m = np.concatenate([_is_inside(values_u, counts_u, means, limit) for means in chunks])
    kept = grid_m[inside_m]
    if kept.size == 0:  # every grid point is ruled out: the mean lies between two
        kept = values_n.mean(keepdims=True)
    return max(0.0, float(kept[0]) - 0.005), min(1.0, float(kept[-1]) + 0.005)


def _is_inside(
    values_u: Floats, counts_u: Floats, means_m: Floats, limit: float
) -> NDArray[np.bool_]:
    differences_mu = values_u[None, :] - means_m[:, None]
    higher_mub = np.log1p(np.multiply.outer(differences_mu, LIFT_BETS.sizes))
    lower_mub = np.log1p(np.multiply.outer(-differences_mu, LIFT_BETS.sizes))
    higher_m = _log_mean_exp(np.einsum("u,mub->mb", counts_u, higher_mub), LIFT_BETS)
    lower_m = _log_mean_exp(np.einsum("u,mub->mb", counts_u, lower_mub), LIFT_BETS)
    return np.asarray(np.maximum(higher_m, lower_m) < limit)


def _log_mean_exp(logs_nb: Floats, bets: Bets) -> Floats:
    peak_n1 = logs_nb.max(axis=1, keepdims=True)
    log_means_n = peak_n1[:, 0] + np.log(np.exp(logs_nb - peak_n1) @ bets.weights)
    return np.asarray(log_means_n, dtype=np.float64)
