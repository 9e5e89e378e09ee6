"""Pairs of outcomes: the k-th of one arm with the next of the other, in order. Pure.

Subjects are assigned at random and each counts once for each arm, so the k-th outcomes of two arms
are exchangeable under equal policies. A small arm meets the mean of several outcomes of the large
one: the number is fixed by the declared share, before anything is seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Pairs:
    """Outcomes side by side: both [n]; `challenger - champion` is the paired difference."""

    champion: NDArray[np.float64]
    challenger: NDArray[np.float64]

    @property
    def differences(self) -> NDArray[np.float64]:
        """Challenger minus champion: [n]."""
        return self.challenger - self.champion

    def __len__(self) -> int:
        """Number of pairs."""
        return int(self.champion.size)


def block_sizes(share: float) -> tuple[int, int]:
    """Return how many outcomes of (champion, challenger) make one pair for a challenger's share.

    Raises:
        ValueError: the share is not between 0 and 1.
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, got {share}")
    odds = (1 - share) / share
    return max(1, int(odds + 1e-9)), max(1, int(1 / odds + 1e-9))


def pair_outcomes(champion: Sequence[float], challenger: Sequence[float], *, share: float) -> Pairs:
    """Pair two arms' outcomes in order; what has no partner yet waits.

    Raises:
        ValueError: the share is not between 0 and 1.
    """
    champion_block, challenger_block = block_sizes(share)
    champion_n = _block_means(champion, champion_block)
    challenger_n = _block_means(challenger, challenger_block)
    num_pairs = min(champion_n.size, challenger_n.size)
    return Pairs(champion_n[:num_pairs], challenger_n[:num_pairs])


def _block_means(outcomes: Sequence[float], size: int) -> NDArray[np.float64]:
    num_blocks = len(outcomes) // size
    values = np.asarray(outcomes[: num_blocks * size], dtype=np.float64)
    return np.asarray(values.reshape(num_blocks, size).mean(axis=1), dtype=np.float64)
