"""Which experiences form the next batch, so that nobody moves it by more than a declared share.

Pure. Each item has keys such as its subject, its raters and its tenant; each kind of key has a
share.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class BatchItem:
    """One experience as the choice sees it."""

    experience_id: str
    keys: frozenset[tuple[str, str]]
    """(kind, who), e.g. ("subject", "a1b2"), ("rater", "c3d4"); several raters are possible."""


def max_items(share: float, batch_size: int) -> int:
    """Return how many of `batch_size` items one key may have: floor(share * size), at least 1."""
    # The small addend keeps 0.3 * 10 from becoming 2.
    return max(1, int(share * batch_size + 1e-9))


def choose_batch(
    queue: Sequence[BatchItem],
    *,
    max_size: int,
    min_size: int,
    max_shares: Mapping[str, float],
) -> list[str]:
    """Return the ids of the largest batch, oldest first, that keeps all shares; [] = none.

    What is passed over stays in the queue for a later batch.
    """
    for size in range(min(max_size, len(queue)), min_size - 1, -1):
        limits = {kind: max_items(share, size) for kind, share in max_shares.items()}
        chosen = _take(queue, size, limits)
        if len(chosen) == size:
            return chosen
    return []


def _take(queue: Sequence[BatchItem], size: int, limits: Mapping[str, int]) -> list[str]:
    counts: Counter[tuple[str, str]] = Counter()

    def is_free(item: BatchItem) -> bool:
        if any(counts[key] >= limits.get(key[0], size) for key in item.keys):
            return False
        counts.update(item.keys)
        return True

    return [item.experience_id for item in islice(filter(is_free, queue), size)]
