"""Log records as people and programs read them. Pure."""

import base64
from typing import Any

from tidemill.cli.printing import printable
from tidemill.contracts.codec import decode
from tidemill.contracts.events import (
    FEEDBACK,
    INTERACTIONS,
    POLICIES,
    Event,
    FeedbackReceived,
    InteractionServed,
    PolicyStatusChanged,
)
from tidemill.errors import ContractError
from tidemill.eventlog.base import Record

_KINDS: dict[str, type[Event]] = {
    INTERACTIONS: InteractionServed,
    FEEDBACK: FeedbackReceived,
    POLICIES: PolicyStatusChanged,
}
_MAX_SHOWN = 200


def record_to_json(record: Record) -> dict[str, Any]:
    """Return a record with its event, or with its bytes (base64) and what is wrong with them."""
    facts: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "appended_at": record.appended_at.isoformat(),
        "key": record.key,
    }
    event = _event_of(record)
    if isinstance(event, Event):
        return facts | {"event": event.model_dump(mode="json")}
    return facts | {"problem": event, "value_base64": base64.b64encode(record.value).decode()}


def describe_record(record: Record) -> str:
    """Return a record on one line, without what was said in it."""
    place = f"{record.appended_at:%F %T.%f}  {record.partition}/{record.offset}"
    event = _event_of(record)
    if isinstance(event, InteractionServed):
        text = (
            f"{event.interaction_id} turn {event.turn} {event.newest_policy_version} "
            f"{event.arm.value} {event.finish_reason.value} {len(event.completion_ids)} tokens"
        )
    elif isinstance(event, FeedbackReceived):
        value = event.value if isinstance(event.value, bool | float) else type(event.value).__name__
        text = (
            f"{event.feedback_id} {event.metric}={value} by {event.source.value} "
            f"on {event.target_id}"
        )
    elif isinstance(event, PolicyStatusChanged):
        text = f"{event.model} {event.policy_version} {event.status}: {event.reason}"
    else:
        text = f"{event}; {len(record.value)} bytes"
    return f"{place}  {printable(text)[:_MAX_SHOWN]}"


def _event_of(record: Record) -> Event | str:
    kind = _KINDS.get(record.topic)
    if kind is None:
        return "no event is declared for this topic"
    try:
        return decode(kind, record.value)
    except ContractError as error:
        return f"unusable: {error}"
