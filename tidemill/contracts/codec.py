"""Events to bytes and back: UTF-8 JSON with `schema_version`.

A reader keeps reading every older version. `tests/contract` holds a golden file for each.
"""

import json
from typing import Any, TypeVar

from pydantic import ValidationError

from tidemill.contracts.complaints import first_complaint
from tidemill.contracts.events import (
    Event,
    FeedbackReceived,
    InteractionServed,
    PolicyStatusChanged,
)
from tidemill.errors import UndecodableEventError, UnknownSchemaVersionError

E = TypeVar("E", bound=Event)

MAX_EVENT_BYTES = 1 << 20
"""Kafka's own default limit for one record."""

_NEWEST: dict[type[Event], int] = {
    InteractionServed: 1,
    FeedbackReceived: 1,
    PolicyStatusChanged: 1,
}


def encode(event: Event) -> bytes:
    """Return the event's bytes; equal events give equal bytes."""
    return event.model_dump_json().encode()


def decode(kind: type[E], payload: bytes) -> E:
    """Read an event of a kind.

    Raises:
        UnknownSchemaVersionError: the event is newer than this reader.
        UndecodableEventError: the bytes are no such event.
    """
    if len(payload) > MAX_EVENT_BYTES:
        raise UndecodableEventError(f"{len(payload)} bytes; at most {MAX_EVENT_BYTES}")
    try:
        return kind.model_validate_json(payload)
    except ValidationError as error:
        # Only now: a newer version is one that this reader's fields do not fit.
        _check_version(kind, payload)
        reason = f"{kind.__name__}.{first_complaint(error)}"
        raise UndecodableEventError(reason) from error
    except RecursionError as error:
        raise UndecodableEventError("nested too deeply") from error
    except (ValueError, ArithmeticError) as error:
        # Whatever else a stranger's numbers make of a parser or a validator: the reader goes on.
        raise UndecodableEventError(f"{kind.__name__}: {type(error).__name__}") from error


def _check_version(kind: type[Event], payload: bytes) -> None:
    version = _schema_version(_load(payload))
    if version > _NEWEST[kind]:
        raise UnknownSchemaVersionError(
            f"{kind.__name__} has schema_version {version}, this reader knows up to "
            f"{_NEWEST[kind]}; upgrade Tidemill and replay the dead letter"
        )


def _load(payload: bytes) -> Any:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise UndecodableEventError(f"not JSON: {type(error).__name__}") from error


def _schema_version(document: Any) -> int:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UndecodableEventError(
            f"schema_version must be a positive integer, got {version!r:.80}"
        )
    return version
