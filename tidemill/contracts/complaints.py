"""What is wrong with a document, in one sentence: the first complaint of pydantic, made readable.

Pydantic tries every form that a feedback's `value` may have and complains about each of them. Only
the complaint about the form that was meant helps; where none was meant, the list of forms does.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tidemill.contracts.events import Comment, Demonstration, Edit, Event, FiniteFloat

_NUMBER: TypeAdapter[float] = TypeAdapter(FiniteFloat)
_OBJECTS: tuple[type[Event], ...] = (Comment, Demonstration, Edit)
_FORMS = (
    'true or false, a finite number, {"comment": text}, {"demonstration": text}, '
    '{"kept_fraction": 0 to 1} or {"final_text": text}'
)


@dataclass(frozen=True, slots=True)
class Complaint:
    """One thing that is wrong; what was sent is described, never repeated."""

    field: str | None
    """Where, as names joined by dots; None = the document as a whole."""
    message: str
    is_unknown_field: bool = False
    """Whether the field is one that nobody declared."""

    def __str__(self) -> str:
        """Return field and message."""
        return self.message if self.field is None else f"{self.field}: {self.message}"


def first_complaint(
    error: ValidationError, *, sentences: Mapping[str, str] | None = None
) -> Complaint:
    """Return the complaint that helps whoever wrote the document.

    Args:
        error: of pydantic.
        sentences: what to say instead of a pattern that a text does not match.
    """
    first = error.errors(include_url=False)[0]
    if first["type"] == "string_pattern_mismatch":
        sentence = (sentences or {}).get(first["ctx"]["pattern"])
        if sentence is not None:
            return Complaint(_place(first["loc"]), sentence)
    place = first["loc"]
    if place[0:1] == ("value",) and len(place) > 1:
        # The first form of the union is a plain boolean: its input is the whole value.
        return _of_value(first["input"])
    return _complaint(first)


def _of_value(value: Any) -> Complaint:
    try:
        if isinstance(value, int | float):
            _NUMBER.validate_python(value)
        for kind in _OBJECTS:
            if isinstance(value, dict) and not kind.model_fields.keys().isdisjoint(value):
                kind.model_validate(value)
    except ValidationError as error:
        return _complaint(error.errors(include_url=False, include_context=False)[0], "value")
    return Complaint("value", f"must be {_FORMS}; it is {_described(value)}")


def _complaint(details: Any, *prefix: str) -> Complaint:
    message = details["msg"].removeprefix("Value error, ").replace("Invalid JSON", "not JSON")
    place = _place((*prefix, *details["loc"]))
    return Complaint(place, message, details["type"] == "extra_forbidden")


def _place(parts: tuple[int | str, ...]) -> str | None:
    return ".".join(str(part) for part in parts) or None


def _described(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, dict):
        return "an object with none of these names"
    return "a list" if isinstance(value, list) else "no JSON value"
