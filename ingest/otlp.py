"""Evaluations that come as OpenTelemetry events, and the feedback that each of them is. Pure.

The event is `gen_ai.evaluation.result` of the semantic conventions for generative AI, which call it
"in development"; the form is OTLP in JSON, whose readers pass over fields that they do not know.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError

from ingest.api_errors import ProblemError, printable
from ingest.api_schemas import FeedbackBody
from tidemill.contracts.complaints import first_complaint
from tidemill.contracts.events import FeedbackSource
from tidemill.rewards.metrics import Metric, MetricType

EVENT = "gen_ai.evaluation.result"
NAME = "gen_ai.evaluation.name"
SCORE = "gen_ai.evaluation.score.value"
LABEL = "gen_ai.evaluation.score.label"
EXPLANATION = "gen_ai.evaluation.explanation"
RESPONSE = "gen_ai.response.id"
CONVERSATION = "gen_ai.conversation.id"

_LABELS = {"pass": True, "true": True, "yes": True, "fail": False, "false": False, "no": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Json = dict[str, Any]


def _or_empty(value: Any) -> Any:
    # JSON of protobuf may write null for whatever is not there.
    return [] if value is None else value


_Null = BeforeValidator(_or_empty)


class _Scope(BaseModel):
    logRecords: Annotated[list[Any], _Null] = []


class _Resource(BaseModel):
    scopeLogs: Annotated[list[_Scope], _Null] = []


class Export(BaseModel):
    """A request of an exporter: records in scopes in resources."""

    resourceLogs: Annotated[list[_Resource], _Null] = []

    def records(self) -> Iterator[Any]:
        """Return the records, in order; each may still be anything."""
        for resource in self.resourceLogs:
            for scope in resource.scopeLogs:
                yield from scope.logRecords


class UnusableRecordError(ValueError):
    """A record that is no feedback; the message says why."""


def read_export(raw: bytes) -> list[Any]:
    """Return the records of a request.

    Raises:
        ProblemError: 422, it is no OTLP in JSON.
    """
    try:
        return list(Export.model_validate_json(raw).records())
    except ValidationError as error:
        raise ProblemError(422, f"no OTLP logs in JSON: {first_complaint(error)}") from error


def feedback_of(record: Any, metrics: Mapping[str, Metric]) -> FeedbackBody:
    """Return the feedback that a record is.

    Its id is made of what the record says, so that a record that an exporter sends again is a
    repeat, whenever and to whichever process it comes.

    Raises:
        UnusableRecordError: it is no evaluation, of no declared metric, or of no interaction.
    """
    if not isinstance(record, dict):
        raise UnusableRecordError("a log record must be an object")
    said = _attributes(record)
    kind = record.get("eventName") or said.get("event.name")
    if kind != EVENT:
        raise UnusableRecordError(f"the event is {_short(kind)}, not {EVENT}")
    name = said.get(NAME)
    metric = metrics.get(name) if isinstance(name, str) else None
    if metric is None:
        declared = ", ".join(sorted(metrics))
        raise UnusableRecordError(f"{NAME} {_short(name)} is no metric; declared: {declared}")
    document = {
        "feedback_id": _identity(record, said),
        "metric": name,
        "value": _value(metric.type, said),
        "source": FeedbackSource.JUDGE,
        "at": _moment(record),
    } | _target(said)
    try:
        return FeedbackBody.model_validate(document)
    except ValidationError as error:
        raise UnusableRecordError(printable(str(first_complaint(error)))) from error


def _target(said: Json) -> Json:
    if RESPONSE in said:
        return {"interaction_id": said[RESPONSE]}
    if CONVERSATION in said:
        return {"trajectory_id": said[CONVERSATION]}
    raise UnusableRecordError(
        f"{RESPONSE} is missing: send the value of x-tidemill-interaction there, or a trajectory "
        f"as {CONVERSATION}"
    )


def _value(kind: MetricType, said: Json) -> Any:
    score, label = said.get(SCORE), said.get(LABEL)
    if kind is MetricType.BOOL:
        if score in (0, 1):
            return bool(score)
        if score is None and isinstance(label, str) and label.lower() in _LABELS:
            return _LABELS[label.lower()]
        raise UnusableRecordError(
            f"{said[NAME]} is a bool: {SCORE} must be 0 or 1, or {LABEL} one of "
            f"{', '.join(_LABELS)}"
        )
    if kind is MetricType.COMMENT:
        return {"comment": said.get(EXPLANATION) or label}
    if kind is MetricType.EDIT:
        return {"kept_fraction": _float(score, said)}
    if kind is MetricType.FLOAT:
        return _float(score, said)
    raise UnusableRecordError(f"{said[NAME]} is a {kind}, which no evaluation can carry")


def _float(score: Any, said: Json) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise UnusableRecordError(f"{said[NAME]} needs a number as {SCORE}")
    try:
        return float(score)
    except OverflowError as error:  # text of hundreds of digits is an int to Python
        raise UnusableRecordError(f"{SCORE} is beyond all numbers") from error


def _attributes(record: Json) -> Json:
    pairs = record.get("attributes") or []
    if not isinstance(pairs, list):
        raise UnusableRecordError("attributes must be an array")
    return {
        pair["key"]: _plain(pair.get("value"))
        for pair in pairs
        if isinstance(pair, dict) and isinstance(pair.get("key"), str)
    }


def _plain(value: Any) -> Any:
    """Return a value without the wrapping that tells its type."""
    if not isinstance(value, dict):
        return None
    if "intValue" in value or "doubleValue" in value:
        return _number(value)
    for kind in ("stringValue", "boolValue"):
        if kind in value:
            return value[kind]
    return None


def _number(value: Json) -> int | float | None:
    # JSON of protobuf writes 64-bit integers, and what is no number, as text.
    try:
        return int(value["intValue"]) if "intValue" in value else float(value["doubleValue"])
    except (TypeError, ValueError, OverflowError):
        return None


def _moment(record: Json) -> datetime | None:
    name, nanoseconds = _time(record)
    try:
        microseconds = int(nanoseconds or 0) // 1000
        return _EPOCH + timedelta(microseconds=microseconds) if microseconds > 0 else None
    except (TypeError, ValueError, OverflowError) as error:
        raise UnusableRecordError(f"{name} is no time") from error


def _time(record: Json) -> tuple[str, Any]:
    """Return the time that a record has, and the field that it is from.

    As the specification has it for whoever keeps one time: when it happened, or, where nobody
    said that (0 or absent), when the SDK saw it.
    """
    happened = record.get("timeUnixNano")
    if happened in (None, "", 0, "0"):
        return "observedTimeUnixNano", record.get("observedTimeUnixNano")
    return "timeUnixNano", happened


def _identity(record: Json, said: Json) -> str:
    kept = {name: record.get(name) for name in ("traceId", "spanId", "body")}
    kept["timeUnixNano"] = _time(record)[1]
    text = json.dumps([kept, said], sort_keys=True, separators=(",", ":"))
    return f"otel-{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _short(value: Any) -> str:
    return printable(repr(value)[:100])
