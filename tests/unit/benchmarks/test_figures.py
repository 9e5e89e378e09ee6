import pytest

from benchmarks.figures import judge, largest_change, median, median_ratio, percentile


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 1) == 100
    assert percentile([7.0], 0.01) == 7


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.1)])
def test_a_percentile_of_nothing_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(ValueError, match="values and share"):
        percentile(values, share)


def test_the_median_of_no_round_is_unknown() -> None:
    assert median([3.0, 1.0, 2.0]) == 2
    assert median([]) is None


def test_a_ratio_is_of_rounds_and_not_of_medians() -> None:
    # A slow second round leaves its own ratio; the medians, 20 and 10, would say 2.
    assert median_ratio([20.0, 1.0, 30.0], [10.0, 10.0, 10.0]) == 2
    assert median_ratio([20.0, 2.0, 30.0], [40.0, 4.0, 10.0]) == 0.5


@pytest.mark.parametrize(
    ("values", "change"),
    [([10.0, 11.0, 12.0], 0.2), ([10.0, 7.0, 12.0], 0.3), ([10.0], 0.0), ([], None)],
)
def test_a_change_is_from_the_first_value_in_both_directions(
    values: list[float], change: float | None
) -> None:
    assert largest_change(values) == (None if change is None else pytest.approx(change))


def test_sides_of_a_ratio_have_the_same_rounds() -> None:
    with pytest.raises(ValueError, match="zip"):
        median_ratio([1.0], [1.0, 2.0])


@pytest.mark.parametrize(
    ("value", "side", "is_met"),
    [
        (0.6, "least", True),
        (0.59, "least", False),
        (8.0, "most", True),
        (8.1, "most", False),
        (None, "least", False),
        (None, "most", False),
    ],
)
def test_a_target_is_met_at_its_bar_and_never_unmeasured(
    value: float | None, side: str, is_met: bool
) -> None:
    bound = 0.6 if side == "least" else 8.0
    target = judge("x", value, bound, side="least" if side == "least" else "most")
    assert target.model_dump() == {"name": "x", "value": value, "target": bound, "met": is_met}
