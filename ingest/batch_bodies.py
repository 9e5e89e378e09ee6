"""What a batch request holds: one JSON document, or a line for each item (NDJSON). Pure."""

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from ingest.api_errors import ProblemError, printable

NDJSON = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class NoItem:
    """A line that is no JSON: rejected by itself, whatever the others are."""

    reason: str


def read_items(raw: bytes, *, content_type: str, limit: int) -> list[Any]:
    """Return the items of a batch in order, each as parsed or a `NoItem`.

    Args:
        raw: the body.
        content_type: as the client said it; anything but NDJSON is one JSON document.
        limit: most items.

    Raises:
        ProblemError: no items, too many, or a document of another form.
    """
    if content_type.partition(";")[0].strip().lower() == NDJSON:
        lines = [line for line in raw.split(b"\n") if line.strip()]
        _check_count(len(lines), limit)
        return [_line(line) for line in lines]
    try:
        document = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ProblemError(422, printable(f"not JSON: {error}")) from error
    if not isinstance(document, dict) or set(document) != {"feedback"}:
        raise ProblemError(422, f'send {{"feedback": [...]}} and nothing else, or {NDJSON}')
    items = document["feedback"]
    if not isinstance(items, list):
        raise ProblemError(422, "feedback must be a list", field="feedback")
    _check_count(len(items), limit)
    return items


def _line(line: bytes) -> Any:
    try:
        return from_json(line, allow_inf_nan=False)
    except ValueError as error:
        return NoItem(printable(f"not JSON: {error}"))


def _check_count(number: int, limit: int) -> None:
    if not 1 <= number <= limit:
        raise ProblemError(
            422, f"a batch has 1 to {limit} items, this one {number}", field="feedback"
        )
