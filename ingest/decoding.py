"""From a log record to an event that rows can hold, or the reason why not. Pure.

Whatever passes here can be written: no text that a database refuses, no number that a column
cannot hold. Otherwise one poisoned record would stop its partition for good.
"""

from dataclasses import dataclass
from typing import TypeVar

from tidemill.contracts.codec import decode
from tidemill.contracts.events import (
    DeadLetterReason,
    Event,
    FeedbackReceived,
    InteractionServed,
)
from tidemill.errors import UndecodableEventError, UnknownSchemaVersionError
from tidemill.eventlog.base import Record
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.scoring import refusal
from tidemill.texts import is_storable

E = TypeVar("E", bound=Event)

_MAX_INT32 = 2**31 - 1
_MAX_DETAIL = 500


@dataclass(frozen=True, slots=True)
class Unusable:
    """A record that becomes a dead letter."""

    reason: DeadLetterReason
    detail: str
    tenant: str | None = None
    record_id: str | None = None


def decode_interaction(record: Record) -> InteractionServed | Unusable:
    """Read an interaction from the log."""
    event = _decode(InteractionServed, record)
    if isinstance(event, Unusable):
        return event
    why = _interaction_flaw(event)
    if why is not None:
        return Unusable(DeadLetterReason.UNDECODABLE, why, record_id=event.interaction_id)
    return event


def decode_feedback(record: Record, metrics: MetricsFile) -> FeedbackReceived | Unusable:
    """Read a feedback from the log and check it against the declared metrics."""
    event = _decode(FeedbackReceived, record)
    if isinstance(event, Unusable):
        return event
    texts = (event.tenant, event.rater, event.body_digest, *_value_texts(event))
    if not all(map(is_storable, texts)):
        detail = "a text holds a NUL or half a surrogate pair"
        return Unusable(DeadLetterReason.UNDECODABLE, detail, record_id=event.feedback_id)
    metric = metrics.metrics.get(event.metric)
    if metric is None:
        known = ", ".join(sorted(metrics.metrics))
        reason, detail = DeadLetterReason.UNKNOWN_METRIC, f"{event.metric!r}; declared: {known}"
    else:
        why = refusal(metric, event.value, names_interaction=event.interaction_id is not None)
        if why is None:
            return event
        reason, detail = DeadLetterReason.WRONG_TYPE, why
    return Unusable(reason, _printable(detail), event.tenant, event.feedback_id)


def _decode(kind: type[E], record: Record) -> E | Unusable:
    try:
        event = decode(kind, record.value)
    except UnknownSchemaVersionError as error:
        return Unusable(DeadLetterReason.UNKNOWN_SCHEMA_VERSION, _printable(str(error)))
    except UndecodableEventError as error:
        return Unusable(DeadLetterReason.UNDECODABLE, _printable(str(error)))
    if record.key != event.key:
        # Under another key it may lie in another partition than the rest of its trajectory.
        detail = f"the record's key {record.key!r} is not the trajectory {event.key}"
        return Unusable(DeadLetterReason.UNDECODABLE, _printable(detail))
    return event


def _interaction_flaw(event: InteractionServed) -> str | None:
    texts = (event.tenant, event.model, event.subject, event.context)
    if not all(map(is_storable, texts)):
        return "a text holds a NUL or half a surrogate pair"
    if event.turn > _MAX_INT32:
        return f"turn {event.turn} is beyond any conversation"
    return None


def _value_texts(event: FeedbackReceived) -> tuple[str | None, ...]:
    value = event.value
    if isinstance(value, bool | float):
        return ()
    return tuple(text for text in dict(value).values() if isinstance(text, str))


def _printable(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\x00")[:_MAX_DETAIL]
