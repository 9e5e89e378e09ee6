"""What a batch request holds: one JSON document, or a line for each item (NDJSON). Pure."""

from typing import Any

from pydantic_core import from_json

from ingest.api_errors import ProblemError, printable

NDJSON = "application/x-ndjson"


def read_items(raw: bytes, *, field: str, content_type: str, limit: int) -> list[Any]:
    """Return the items of a batch, in order.

    Args:
        raw: the body.
        field: what the list is called in the JSON document.
        content_type: as the client said it; anything but NDJSON is one JSON document.
        limit: most items.

    Returns:
        Each as parsed, or the `bytes` of its line, not parsed yet: whoever validates a line parses
        it in the same go, and a broken one spoils no other.

    Raises:
        ProblemError: no items, too many, or a document of another form.
    """
    if content_type.partition(";")[0].strip().lower() == NDJSON:
        lines = [line for line in raw.split(b"\n") if line.strip()]
        _check_count(len(lines), field, limit)
        return lines
    try:
        document = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise ProblemError(422, printable(f"not JSON: {error}")) from error
    if not isinstance(document, dict) or set(document) != {field}:
        raise ProblemError(422, f'send {{"{field}": [...]}} and nothing else, or {NDJSON}')
    items = document[field]
    if not isinstance(items, list):
        raise ProblemError(422, f"{field} must be a list", field=field)
    _check_count(len(items), field, limit)
    return items


def _check_count(number: int, field: str, limit: int) -> None:
    if not 1 <= number <= limit:
        raise ProblemError(422, f"a batch has 1 to {limit} items, this one {number}", field=field)
