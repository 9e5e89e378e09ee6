import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ingest.api_errors import ProblemError
from ingest.otlp import EVENT, LABEL, NAME, SCORE, UnusableRecordError, feedback_of, read_export
from tests.factories import make_interaction
from tests.ingest_rig import METRICS
from tidemill.contracts.events import Comment, FeedbackSource
from tidemill.rewards.metrics_file import parse_metrics

DECLARED = parse_metrics(METRICS + '[metrics.kept]\ntype = "edit"\nwindow_s = 9\n').metrics
INTERACTION = make_interaction()


def pair(name: str, value: Any) -> dict[str, Any]:
    kinds = {str: "stringValue", bool: "boolValue", float: "doubleValue", int: "intValue"}
    # A 64-bit integer is text in JSON of protobuf.
    shown = str(value) if type(value) is int else value
    return {"key": name, "value": {kinds[type(value)]: shown}}


def record(*, drop: str | None = None, over: dict[str, Any] | None = None, **said: Any) -> Any:
    attributes = {
        NAME: "accepted",
        SCORE: 1.0,
        "gen_ai.response.id": INTERACTION.interaction_id,
    } | {f"gen_ai.evaluation.{name.replace('_', '.')}": value for name, value in said.items()}
    attributes.pop(drop or "", None)
    return {
        "timeUnixNano": "1796126400123456789",
        "eventName": EVENT,
        "attributes": [pair(name, value) for name, value in attributes.items()],
    } | (over or {})


def test_an_evaluation_becomes_the_feedback_of_a_judge() -> None:
    body = feedback_of(record(), DECLARED)
    assert (body.metric, body.value) == ("accepted", True)
    assert body.interaction_id == INTERACTION.interaction_id
    assert body.source is FeedbackSource.JUDGE
    assert body.at == datetime(2026, 12, 1, 12, 0, 0, 123456, UTC)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ({"score_value": 0}, False),
        ({"score_value": 1}, True),
        ({"name": "stars", "score_value": 4}, 4.0),
        ({"name": "stars", "score_value": 3.5, "explanation": "fine"}, 3.5),
        ({"name": "note", "explanation": "too long"}, Comment(comment="too long")),
        ({"name": "note", "score_label": "rude"}, Comment(comment="rude")),
    ],
)
def test_the_declared_type_says_what_is_taken(said: dict[str, Any], value: Any) -> None:
    found = feedback_of(record(**said), DECLARED).value
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(("label", "value"), [("PASS", True), ("no", False), ("true", True)])
def test_a_label_stands_for_a_bool_where_there_is_no_score(label: str, value: bool) -> None:
    assert feedback_of(record(drop=SCORE, score_label=label), DECLARED).value is value


def test_an_edit_takes_the_score_as_the_kept_fraction() -> None:
    body = feedback_of(record(name="kept", score_value=0.25), DECLARED)
    assert body.model_dump()["value"]["kept_fraction"] == 0.25


def test_a_conversation_stands_for_a_trajectory() -> None:
    said = record(drop="gen_ai.response.id", name="solved")
    said["attributes"].append(pair("gen_ai.conversation.id", INTERACTION.trajectory_id))
    body = feedback_of(said, DECLARED)
    assert (body.interaction_id, body.trajectory_id) == (None, INTERACTION.trajectory_id)


def test_the_id_is_made_of_what_was_said_and_of_nothing_else() -> None:
    first = feedback_of(record(), DECLARED).feedback_id
    # Whoever passes it on may stamp it anew, and order its attributes otherwise.
    again = record(over={"observedTimeUnixNano": "9", "severityNumber": 9})
    again["attributes"].reverse()
    assert feedback_of(again, DECLARED).feedback_id == first
    others = [
        record(over={"timeUnixNano": "1796126400123456790"}),
        record(over={"spanId": "00f067aa0ba902b7"}),
        record(score_value=0.0),
        record(explanation="because"),
    ]
    ids = {feedback_of(other, DECLARED).feedback_id for other in others}
    assert len(ids | {first}) == 5


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("text", "must be an object"),
        (record(over={"eventName": "http.request"}), "the event is 'http.request', not gen_ai"),
        (record(over={"eventName": None}), "the event is None"),
        (record(over={"attributes": 7}), "attributes must be an array"),
        (record(over={"attributes": [7, {"key": 1}, {"key": NAME}]}), "is no metric; declared:"),
        (record(name="nobody"), "'nobody' is no metric; declared: accepted"),
        (record(drop="gen_ai.response.id"), "send the value of x-tidemill-interaction there"),
        (record(score_value=0.5), "accepted is a bool"),
        (record(drop=SCORE), "accepted is a bool"),
        (record(drop=SCORE, score_label="maybe"), "accepted is a bool"),
        (record(name="stars", drop=SCORE), "stars needs a number"),
        (record(name="stars", score_value=True), "stars needs a number"),
        (record(name="stars", score_value="4"), "stars needs a number"),
        (record(name="stars", score_value=float("nan")), "finite"),
        (record(name="note"), "comment"),
        (record(name="kept", score_value=1.5), "kept_fraction"),
        (record(over={"timeUnixNano": "soon"}), "timeUnixNano is no time"),
        (record(over={"timeUnixNano": "9" * 30}), "timeUnixNano is no time"),
    ],
)
def test_what_is_no_feedback_says_why(said: Any, why: str) -> None:
    with pytest.raises(UnusableRecordError, match=why):
        feedback_of(said, DECLARED)


@pytest.mark.parametrize("value", [{"intValue": "x"}, {"doubleValue": None}, {"intValue": []}, 7])
def test_a_score_that_is_no_number_is_none(value: Any) -> None:
    said = record(name="stars", drop=SCORE)
    said["attributes"].append({"key": SCORE, "value": value})
    with pytest.raises(UnusableRecordError, match="stars needs a number"):
        feedback_of(said, DECLARED)


def test_a_demonstration_has_no_form_there() -> None:
    text = METRICS + '[metrics.want]\ntype = "demonstration"\nwindow_s = 9\n'
    with pytest.raises(UnusableRecordError, match="no evaluation can carry"):
        feedback_of(record(name="want"), parse_metrics(text).metrics)


def test_an_empty_label_is_no_verdict() -> None:
    said = record(drop=SCORE)
    said["attributes"].append({"key": LABEL, "value": {"arrayValue": {"values": []}}})
    with pytest.raises(UnusableRecordError, match="accepted is a bool"):
        feedback_of(said, DECLARED)


def test_records_come_out_of_all_scopes_in_order() -> None:
    scopes = [{"logRecords": [1, 2]}, {"scope": {"name": "s"}, "logRecords": [3]}]
    document = {"resourceLogs": [{"scopeLogs": scopes}, {}], "more": 1}
    assert read_export(json.dumps(document).encode()) == [1, 2, 3]
    assert read_export(b"{}") == []


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"resourceLogs": 7}', b'{"resourceLogs": [[]]}'])
def test_what_is_no_otlp_is_refused(raw: bytes) -> None:
    with pytest.raises(ProblemError, match="no OTLP logs in JSON") as caught:
        read_export(raw)
    assert caught.value.status == 422


def unstamped(observed: Any = None) -> Any:
    return record(over={"timeUnixNano": "0", "observedTimeUnixNano": observed})


def test_where_nobody_says_when_it_happened_it_is_when_it_was_seen() -> None:
    seen = feedback_of(unstamped("1796126400123456789"), DECLARED)
    assert seen.at == datetime(2026, 12, 1, 12, 0, 0, 123456, UTC)
    again = feedback_of(unstamped("1796126400123456789"), DECLARED)
    later = feedback_of(unstamped("1796126500123456789"), DECLARED)
    # A judge that says the same once more, after another answer, has not repeated itself.
    assert again.feedback_id == seen.feedback_id != later.feedback_id
    with pytest.raises(UnusableRecordError, match="observedTimeUnixNano is no time"):
        feedback_of(unstamped("noon"), DECLARED)
    assert feedback_of(unstamped(), DECLARED).at is None


@pytest.mark.parametrize("name", ["stars", "kept"])
def test_a_score_beyond_all_numbers_is_refused_alone(name: str) -> None:
    huge = record(name=name, score_value=10**400)
    with pytest.raises(UnusableRecordError, match="beyond all numbers"):
        feedback_of(huge, DECLARED)


@pytest.mark.parametrize(
    "document",
    [
        {"resourceLogs": None},
        {"resourceLogs": [{"scopeLogs": None}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": None}]}]},
    ],
)
def test_null_stands_for_what_is_not_there(document: dict[str, Any]) -> None:
    assert read_export(json.dumps(document).encode()) == []
