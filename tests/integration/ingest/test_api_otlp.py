"""Evaluations as an OpenTelemetry exporter sends them, on a real database and the embedded log."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ingest.settings import IngestSettings
from tests.ingest_client import INTERACTION, Client
from tidemill.storage.tables import FeedbackRow

JSON = {"content-type": "application/json"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(max_batch_items=5, max_batch_bytes=20_000))
    yield client
    client.close()


def record(number: int, over: dict[str, Any] | None = None) -> dict[str, Any]:
    said = {
        "gen_ai.evaluation.name": {"stringValue": "accepted"},
        "gen_ai.evaluation.score.value": {"intValue": "1"},
        "gen_ai.response.id": {"stringValue": INTERACTION.interaction_id},
    } | (over or {})
    return {
        "timeUnixNano": str(1796126400000000000 + number),
        "eventName": "gen_ai.evaluation.result",
        "attributes": [{"key": name, "value": value} for name, value in said.items()],
    }


def export(*records: Any) -> dict[str, Any]:
    return {"resourceLogs": [{"resource": {}, "scopeLogs": [{"logRecords": list(records)}]}]}


def send(client: Client, body: Any, **over: Any) -> Any:
    return client.post(body, "/v1/logs", **({"headers": JSON} | over))


def stored(client: Client) -> list[FeedbackRow]:
    client.work()
    with client.database.reading() as session:
        return list(session.scalars(select(FeedbackRow)))


def test_evaluations_are_feedback_and_a_repeated_export_stores_nothing_more(
    client: Client,
) -> None:
    body = export(record(1), record(2))
    for _ in range(3):
        answer = send(client, body)
        assert (answer.status_code, answer.json()) == (200, {})
    assert answer.headers["content-type"] == "application/json"
    # As after a restart: only the log and the database remember.
    first = stored(client)
    client.server.acceptor.known_feedback._recent.clear()
    assert send(client, body).json() == {}
    again = stored(client)
    assert [row.feedback_id for row in again] == [row.feedback_id for row in first]
    assert [(row.metric, row.source, row.interaction_id) for row in again] == [
        ("accepted", "judge", INTERACTION.interaction_id)
    ] * 2


def test_a_bad_record_never_spoils_the_rest(client: Client) -> None:
    unknown = record(2, {"gen_ai.evaluation.name": {"stringValue": "nobody"}})
    body = export(record(1), unknown, {"eventName": "other"}, {"eventName": "other"}, record(3))
    answer = send(client, body)
    assert answer.status_code == 200
    told = answer.json()["partialSuccess"]
    assert told["rejectedLogRecords"] == "3"
    assert told["errorMessage"].startswith("2 x the event is 'other', not gen_ai.evaluation.result")
    assert "'nobody' is no metric; declared: accepted" in told["errorMessage"]
    assert len(stored(client)) == 2


def test_a_value_out_of_range_is_refused_as_everywhere(client: Client) -> None:
    score = {"gen_ai.evaluation.score.value": {"doubleValue": 9.0}}
    bad = record(1, score | {"gen_ai.evaluation.name": {"stringValue": "stars"}})
    told = send(client, export(bad)).json()["partialSuccess"]
    assert told["rejectedLogRecords"] == "1"
    assert told["errorMessage"] == "1 x stars: 9.0 lies outside 1.0 to 5.0"


def test_a_score_beyond_all_numbers_spoils_neither_the_rest_nor_the_answer(client: Client) -> None:
    score = {"gen_ai.evaluation.score.value": {"intValue": "9" * 400}}
    bad = record(1, score | {"gen_ai.evaluation.name": {"stringValue": "stars"}})
    answer = send(client, export(bad, record(2)))
    assert answer.status_code == 200
    assert answer.json()["partialSuccess"]["rejectedLogRecords"] == "1"
    assert len(stored(client)) == 1


def test_a_time_far_ahead_is_refused_as_everywhere(client: Client) -> None:
    told = send(client, export(record(10**18))).json()["partialSuccess"]
    assert told["rejectedLogRecords"] == "1"
    assert "ahead of this clock" in told["errorMessage"]


def test_without_the_log_nothing_is_answered_as_taken(client: Client) -> None:
    appends = client.server.acceptor.appends
    sink, appends.sink = appends.sink, None
    answer = send(client, export(record(1)))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    appends.sink = sink
    assert send(client, export(record(1))).json() == {}
    assert len(stored(client)) == 1


@pytest.mark.parametrize(
    "content_type", ["application/x-protobuf", "text/plain", "", "application/jsonx"]
)
def test_protobuf_is_refused_and_told_what_to_set(client: Client, content_type: str) -> None:
    answer = send(client, b"\x0a\x00", headers={"content-type": content_type})
    assert answer.status_code == 415
    assert "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL=http/json" in answer.json()["detail"]


def test_a_packed_body_is_taken_within_the_same_bounds(client: Client) -> None:
    packed = JSON | {"content-encoding": "gzip"}
    raw = gzip.compress(json.dumps(export(record(1))).encode())
    assert send(client, raw, headers=packed).status_code == 200
    bomb = gzip.compress(b" " * 10_000_000)
    assert send(client, bomb, headers=packed).status_code == 413
    assert send(client, raw[:-20], headers=packed).status_code == 422
    assert send(client, b"{}", headers=packed).status_code == 422
    # What comes after the first member would be lost without a word.
    assert send(client, raw + raw, headers=packed).status_code == 422
    assert client.server.acceptor.room.num_bytes == 0
    assert send(client, raw, headers=JSON | {"content-encoding": "br"}).status_code == 415


def test_an_export_may_have_more_records_than_a_batch(client: Client) -> None:
    many = [record(number) for number in range(12)]
    many[7]["attributes"] = []
    refused = send(client, export(*many)).json()["partialSuccess"]
    assert refused["rejectedLogRecords"] == "1"
    assert send(client, export(*many)).json() == {"partialSuccess": refused}
    assert len(stored(client)) == 11


def test_scope_and_size_hold_here_too(client: Client) -> None:
    assert send(client, export(record(1)), key="").status_code == 401
    assert send(client, export(record(1)), key=client.keys["read"]).status_code == 403
    assert send(client, export(record(1)), key=client.keys["feedback:write"]).status_code == 200
    assert send(client, export()).json() == {}
    assert send(client, b"[]").status_code == 422
