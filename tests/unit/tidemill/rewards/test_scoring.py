import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.contracts.events import Comment, Demonstration, Edit, FeedbackValue
from tidemill.rewards.metrics import Aggregation, Metric
from tidemill.rewards.scoring import aggregate, kept_fraction, normalise, raw_number, refusal

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)


def metric(**over: Any) -> Metric:
    return Metric(**({"type": "bool", "window_s": 1} | over))


STARS = metric(type="float", range=(1, 5))


@pytest.mark.parametrize(
    ("declared", "value", "names_interaction", "complaint"),
    [
        (metric(), True, True, None),
        (metric(), 1.0, True, "the metric is a bool, the value a float"),
        (STARS, True, True, "the metric is a float, the value a bool"),
        (STARS, 3.0, True, None),
        (STARS, 5.5, True, r"outside 1.0 to 5.0"),
        (metric(type="float", range=(1, 5), aggregation="sum"), 5.5, True, None),
        (metric(type="edit"), Edit(kept_fraction=0.5), True, None),
        (metric(type="edit"), Comment(comment="x"), True, "the value a comment"),
        (metric(type="comment"), Demonstration(demonstration="x"), True, "a demonstration"),
        (metric(), True, False, "give interaction_id"),
        (metric(level="trajectory"), True, True, "leave interaction_id out"),
        (metric(level="trajectory"), True, False, None),
    ],
)
def test_a_value_must_fit_its_metric(
    declared: Metric, value: FeedbackValue, names_interaction: bool, complaint: str | None
) -> None:
    why = refusal(declared, value, names_interaction=names_interaction)
    assert (why is None) if complaint is None else (why is not None and complaint in why)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (True, 1.0),
        (False, 0.0),
        (2.5, 2.5),
        (Edit(kept_fraction=0.25), 0.25),
        (Edit(final_text="set a timer"), 0.75),  # 3 of the 4 words
        (Edit(final_text=""), 0.0),
        (Comment(comment="no"), None),
        (Demonstration(demonstration="no"), None),
    ],
)
def test_values_become_numbers(value: FeedbackValue, number: float | None) -> None:
    assert raw_number(value, completion="set a new timer") == number


@pytest.mark.parametrize(
    ("completion", "final", "fraction"),
    [("", "", 1.0), ("", "x", 0.0), ("a b", "b a", 1.0), ("a a b", "a", 1 / 3), ("a", "a b", 1.0)],
)
def test_kept_words_are_counted(completion: str, final: str, fraction: float) -> None:
    assert kept_fraction(completion, final) == fraction


@pytest.mark.parametrize(
    ("how", "result"),
    [
        ("last", 3.0),
        ("first", 1.0),
        ("mean", 2.25),  # (1 + 4 + 1 + 3) / 4
        ("sum", 9.0),
        ("max", 4.0),
        ("min", 1.0),
        ("majority", 1.0),
    ],
)
def test_repeats_become_one_number(how: str, result: float) -> None:
    assert aggregate([1.0, 4.0, 1.0, 3.0], Aggregation(how)) == result


def test_a_tied_majority_goes_to_the_value_given_last() -> None:
    assert aggregate([1.0, 0.0], Aggregation.MAJORITY) == 0.0
    assert aggregate([0.0, 1.0, 1.0, 0.0, 1.0, 0.0], Aggregation.MAJORITY) == 0.0


def test_nothing_cannot_be_aggregated() -> None:
    with pytest.raises(ValueError, match="no value"):
        aggregate([], Aggregation.LAST)


@pytest.mark.parametrize(
    ("values", "how", "result", "score"),
    [
        ([1.5e308] * 2, "sum", math.inf, 1.0),
        ([-1.5e308] * 2, "sum", -math.inf, 0.0),
        ([1.5e308, 1.5e308, -1.5e308], "sum", 1.5e308, 1.0),
        ([1.5e308] * 2, "mean", 1.5e308, 1.0),
    ],
)
def test_numbers_beyond_all_doubles_still_have_a_score(
    values: list[float], how: str, result: float, score: float
) -> None:
    declared = metric(type="float", range=(0, 5), aggregation=how)
    assert aggregate(values, declared.aggregation) == result
    assert normalise(declared, result) == score


@given(st.lists(FINITE, min_size=1), st.randoms())
def test_order_matters_only_where_it_should(values: list[float], random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    for how in (Aggregation.MEAN, Aggregation.SUM, Aggregation.MAX, Aggregation.MIN):
        assert aggregate(values, how) == aggregate(shuffled, how)
        assert aggregate(values, how) == aggregate(values[::-1], how)


@pytest.mark.parametrize(
    ("declared", "raw", "score"),
    [
        (STARS, 1.0, 0.0),
        (STARS, 4.0, 0.75),  # (4 - 1) / 4
        (STARS, 9.0, 1.0),
        (STARS, -9.0, 0.0),
        (metric(), 1.0, 1.0),
        (metric(direction="lower"), 1.0, 0.0),
        (metric(type="float", range=(0, 10), direction="lower"), 2.0, 0.8),
    ],
)
def test_scores_lie_between_zero_and_one(declared: Metric, raw: float, score: float) -> None:
    assert normalise(declared, raw) == pytest.approx(score, abs=1e-15)


@given(FINITE, FINITE, FINITE)
def test_any_range_and_number_give_a_score(low: float, high: float, raw: float) -> None:
    if not low < high or high / 2 - low / 2 == 0:
        return
    score = normalise(metric(type="float", range=(low, high)), raw)
    assert 0 <= score <= 1
    assert math.isfinite(score)


SIGNS = [
    signs
    for length in range(1, 6)
    for signs in itertools.product((-1.0, -0.0, 0.0, 1.0), repeat=length)
]
"""Every sign pattern of up to five values, in every order; both zeros, which are one value."""
POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


def majority_of(values: Sequence[float]) -> float:
    """Return, by its definition, the value that most gave; of tied ones the one given last."""
    most = max(values.count(value) for value in values)
    return next(value for value in reversed(values) if values.count(value) == most)


DEFINITIONS: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    Aggregation.LAST: lambda values: values[-1],
    Aggregation.FIRST: lambda values: values[0],
    Aggregation.MEAN: lambda values: float(sum(map(Fraction, values)) / len(values)),
    Aggregation.SUM: lambda values: float(sum(map(Fraction, values))),
    Aggregation.MAX: lambda values: sorted(values)[-1],
    Aggregation.MIN: lambda values: sorted(values)[0],
    Aggregation.MAJORITY: majority_of,
}


@pytest.mark.parametrize("how", Aggregation)
def test_every_sign_pattern_in_every_order_is_aggregated_as_defined(how: Aggregation) -> None:
    for signs in SIGNS:
        assert aggregate(signs, how) == DEFINITIONS[how](signs), signs


@settings(deadline=None)
@given(st.data(), st.sampled_from(SIGNS), st.sampled_from(list(Aggregation)))
def test_magnitudes_of_any_signs_are_aggregated_as_defined(
    data: st.DataObject, signs: tuple[float, ...], how: Aggregation
) -> None:
    values = [sign * data.draw(POSITIVE) for sign in signs]
    # Some twice, in another place, so that majorities and ties are real.
    values += data.draw(st.lists(st.sampled_from(values), max_size=4))
    exact = DEFINITIONS[how](values)
    assert aggregate(values, how) == pytest.approx(exact, rel=1e-15, abs=1e-300)


@given(st.lists(FINITE, min_size=1, max_size=8), st.sampled_from(list(Aggregation)))
def test_one_number_lies_between_the_least_and_the_greatest(
    values: list[float], how: Aggregation
) -> None:
    number = aggregate(values, how)
    if how is not Aggregation.SUM:
        # The mean of equal values may round to their neighbour.
        assert math.nextafter(min(values), -math.inf) <= number
        assert number <= math.nextafter(max(values), math.inf)
    assert aggregate([values[0]], how) == values[0]


@given(st.lists(FINITE, min_size=1, max_size=8), st.sampled_from(list(Aggregation)))
def test_turning_every_sign_turns_the_number(values: list[float], how: Aggregation) -> None:
    turned = {Aggregation.MAX: Aggregation.MIN, Aggregation.MIN: Aggregation.MAX}.get(how, how)
    assert aggregate([-value for value in values], turned) == -aggregate(values, how)


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.sampled_from(list(Aggregation)))
def test_swapping_yes_and_no_mirrors_the_score(answers: list[bool], how: Aggregation) -> None:
    bounds = (0, len(answers)) if how is Aggregation.SUM else None
    up = metric(aggregation=how, range=bounds)
    turned = {"max": "min", "min": "max"}.get(how, how)
    other = metric(aggregation=turned, range=bounds)
    score = normalise(up, aggregate([float(one) for one in answers], how))
    mirrored = normalise(other, aggregate([float(not one) for one in answers], Aggregation(turned)))
    assert mirrored == pytest.approx(1 - score, abs=1e-15)


@given(st.lists(FINITE, min_size=2, max_size=6), st.sampled_from(["higher", "lower"]))
def test_more_is_never_worse_where_higher_is_better(values: list[float], way: str) -> None:
    declared = metric(type="float", range=(-1, 1), direction=way)
    scores = [normalise(declared, value) for value in sorted(values)]
    assert scores == sorted(scores, reverse=way == "lower")
