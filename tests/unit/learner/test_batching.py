import pytest

from learner.batching import BatchItem, choose_batch, max_items


def items(subjects: str) -> list[BatchItem]:
    return [BatchItem(f"{n}", frozenset({("subject", who)})) for n, who in enumerate(subjects)]


@pytest.mark.parametrize(
    ("share", "size", "expected"), [(0.25, 16, 4), (0.3, 10, 3), (0.05, 16, 1), (1.0, 16, 16)]
)
def test_a_share_is_a_whole_number_of_items(share: float, size: int, expected: int) -> None:
    assert max_items(share, size) == expected


@pytest.mark.parametrize(
    ("subjects", "chosen"),
    [
        ("abcd", ["0", "1", "2", "3"]),
        # Half of four: the third `a` has to wait.
        ("aaabc", ["0", "1", "3", "4"]),
        # Only two subjects, so two items each of four.
        ("aaaaabb", ["0", "1", "5", "6"]),
        # One subject: one item is less than the smallest batch.
        ("aaaaa", []),
        ("", []),
        # Three items: one each, so the smaller batch is taken.
        ("aabc", ["0", "1", "2", "3"]),
        ("aab", ["0", "2"]),
    ],
)
def test_the_largest_batch_that_keeps_the_shares(subjects: str, chosen: list[str]) -> None:
    found = choose_batch(items(subjects), max_size=4, min_size=2, max_shares={"subject": 0.5})
    assert found == chosen


def test_kinds_without_a_share_are_free() -> None:
    assert len(choose_batch(items("aaaa"), max_size=4, min_size=4, max_shares={})) == 4
