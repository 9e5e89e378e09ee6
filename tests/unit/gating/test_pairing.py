import pytest

from gating.pairing import block_sizes, pair_outcomes


@pytest.mark.parametrize(
    ("share", "sizes"),
    [(0.5, (1, 1)), (0.1, (9, 1)), (0.25, (3, 1)), (0.8, (1, 4)), (0.4, (1, 1))],
)
def test_blocks_follow_the_declared_share(share: float, sizes: tuple[int, int]) -> None:
    assert block_sizes(share) == sizes


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        block_sizes(share)


def test_the_kth_meets_the_kth_and_the_rest_waits() -> None:
    pairs = pair_outcomes([0.0, 1.0, 1.0], [1.0, 1.0], share=0.5)
    assert len(pairs) == 2
    assert list(pairs.differences) == [1.0, 0.0]


def test_a_small_arm_meets_means_of_the_large_one() -> None:
    pairs = pair_outcomes([0, 1, 1, 0, 0, 0, 1], [1.0, 1.0, 1.0], share=0.25)
    assert list(pairs.champion) == pytest.approx([2 / 3, 0.0])
    assert list(pairs.challenger) == [1.0, 1.0]


def test_no_outcomes_make_no_pairs() -> None:
    assert len(pair_outcomes([], [1.0], share=0.5)) == 0
