import json

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from ingest.api_errors import ProblemError, invalid, printable


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")
    number: float


def problem(**values: object) -> ProblemError:
    with pytest.raises(ValidationError) as caught:
        Thing.model_validate(values)
    return invalid(caught.value)


def test_an_unknown_field_is_named() -> None:
    found = problem(number=1, colour="red")
    assert (found.status, found.field) == (422, "colour")
    assert "unknown field colour" in found.detail


def test_what_the_caller_sent_is_not_repeated() -> None:
    found = problem(number="secret words")
    assert "secret" not in json.dumps(found.body)
    assert found.detail.startswith("number: ")


def test_a_body_that_is_no_object_has_no_field() -> None:
    with pytest.raises(ValidationError) as caught:
        Thing.model_validate([])
    assert "field" not in invalid(caught.value).body


@pytest.mark.parametrize(
    ("status", "header"),
    [(401, "www-authenticate"), (429, "retry-after"), (503, "retry-after"), (422, None)],
)
def test_headers_say_how_to_go_on(status: int, header: str | None) -> None:
    assert list(ProblemError(status, "x").headers) == ([header] if header else [])


def test_an_unusual_status_still_has_a_title() -> None:
    assert ProblemError(418, "x").body["title"] == "refused"


def test_any_text_becomes_printable() -> None:
    assert printable("\ud800\xe9") == "\\ud800\\xe9"
