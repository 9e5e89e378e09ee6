import pytest

from serving.errors import (
    ApiError,
    context_length_exceeded,
    invalid_request,
    model_not_found,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (429, "rate_limit_error"),
        (503, "service_unavailable_error"),
    ],
)
def test_the_body_has_the_shape_of_the_api(status: int, kind: str) -> None:
    error = ApiError(status, "no", code="why", param="what")

    assert error.body == {"error": {"message": "no", "type": kind, "param": "what", "code": "why"}}
    assert ("retry-after" in error.headers) == (status in (429, 503))


def test_context_length_names_all_three_numbers() -> None:
    error = context_length_exceeded(num_prompt=10, num_completion=20, limit=25)

    assert all(number in error.message for number in ("25", "30", "10", "20"))


def test_model_not_found_says_what_is_there() -> None:
    assert "tide, tide@v1" in model_not_found("x", known=["tide", "tide@v1"]).message
    assert "none" in model_not_found("x", known=[]).message


def detail(kind: str, *loc: str) -> dict[str, object]:
    return {"type": kind, "loc": loc, "msg": "wrong"}


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        ("extra_forbidden", "unknown_parameter", "unknown parameter 'a.b'"),
        ("missing", "missing_required_parameter", "a.b: wrong"),
        ("json_invalid", "invalid_json", "a.b: wrong"),
        ("unsupported_value", "unsupported_value", "wrong"),
        ("less_than", "invalid_value", "a.b: wrong"),
    ],
)
def test_the_first_complaint_becomes_the_answer(kind: str, code: str, message: str) -> None:
    error = invalid_request(detail(kind, "a", "b"))

    assert (error.status, error.code, error.message, error.param) == (400, code, message, "a.b")


def test_a_complaint_about_the_whole_body_names_no_parameter() -> None:
    assert invalid_request(detail("value_error")).param is None
