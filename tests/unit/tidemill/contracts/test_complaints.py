from typing import Any

import pytest
from pydantic import ValidationError

from tests.factories import make_feedback
from tidemill.contracts.complaints import Complaint, first_complaint
from tidemill.contracts.events import FeedbackReceived


def complaint(document: Any) -> Complaint:
    with pytest.raises(ValidationError) as caught:
        FeedbackReceived.model_validate(document)
    return first_complaint(caught.value)


def changed(**over: Any) -> Complaint:
    return complaint(make_feedback().model_dump() | over)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "value: Input should be a finite number"),
        (10**400, "value: Input should be a valid number"),
        ({"kept_fraction": float("nan")}, "value.kept_fraction: Input should be a finite number"),
        ({"kept_fraction": 2}, "value.kept_fraction: Input should be less than or equal to 1"),
        ({"kept_fraction": 1, "final_text": ""}, "value: an edit has either kept_fraction or"),
        ({"comment": 5}, "value.comment: Input should be a valid string"),
        ({"demonstration": None}, "value.demonstration: Input should be a valid string"),
    ],
)
def test_a_value_is_judged_by_the_form_that_was_meant(value: Any, words: str) -> None:
    assert str(changed(value=value)).startswith(words)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "null"),
        ("secret", "a text"),
        ([], "a list"),
        ({"secret": 1}, "an object with none of these names"),
        (b"secret", "no JSON value"),
    ],
)
def test_a_value_of_no_form_is_answered_with_all_of_them(value: Any, words: str) -> None:
    found = changed(value=value)
    assert found.field == "value"
    assert found.message.startswith('must be true or false, a finite number, {"comment": text}')
    assert found.message.endswith(f"; it is {words}")


def test_an_unknown_field_is_told_from_a_wrong_one() -> None:
    assert changed(surprise=1) == Complaint("surprise", "Extra inputs are not permitted", True)
    inner = changed(value={"final_text": "x", "surprise": 1})
    assert (inner.field, inner.is_unknown_field) == ("value.surprise", True)
    assert not changed(metric="").is_unknown_field


def test_a_document_that_is_no_object_has_no_field() -> None:
    found = complaint([])
    assert found.field is None
    assert str(found) == found.message
