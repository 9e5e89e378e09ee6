import numpy as np
import pytest

from gating.alpha_ledger import allocate_alpha, compute_weight
from gating.betting import bet_against_at_most


def test_weights_sum_to_at_most_one() -> None:
    numbers = np.arange(1, 200_001)
    tail = 200_000**-0.6 / 0.6 / 2.2858
    assert sum(compute_weight(int(number)) for number in numbers) + tail <= 1.0


def test_weights_and_levels_by_hand() -> None:
    assert compute_weight(1) == pytest.approx(0.43748, abs=1e-5)
    assert compute_weight(2) == pytest.approx(0.14432, abs=1e-5)
    assert allocate_alpha(alpha=0.1, number=1, num_promoted=0) == pytest.approx(0.043748, abs=1e-6)
    assert allocate_alpha(alpha=0.1, number=2, num_promoted=1) == pytest.approx(0.028863, abs=2e-6)


@pytest.mark.parametrize(
    ("alpha", "number", "num_promoted"), [(0.0, 1, 0), (1.0, 1, 0), (0.1, 0, 0), (0.1, 2, 2)]
)
def test_nonsense_is_refused(alpha: float, number: int, num_promoted: int) -> None:
    with pytest.raises(ValueError, match=r"alpha|promotions"):
        allocate_alpha(alpha=alpha, number=number, num_promoted=num_promoted)


def test_positions_begin_at_one() -> None:
    with pytest.raises(ValueError, match="from 1"):
        compute_weight(0)


def test_false_promotions_stay_below_alpha_over_a_stream_of_equal_versions() -> None:
    rng = np.random.default_rng(4)
    alpha, streams, length = 0.1, 200, 20
    with_false = 0
    for _ in range(streams):
        promoted = 0
        for number in range(1, length + 1):
            level = allocate_alpha(alpha=alpha, number=number, num_promoted=promoted)
            values = (rng.random(400) < 0.7).astype(float) - (rng.random(400) < 0.7)
            promoted += bet_against_at_most(values).rejects(level)
        # All are null, so a stream with any promotion has a false discovery proportion of 1.
        with_false += promoted > 0
    assert with_false / streams <= alpha + 1.645 * (alpha * (1 - alpha) / streams) ** 0.5
