"""No body makes the API fail, and whatever it accepts the worker can read."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json
from sqlalchemy import select

from ingest.settings import IngestSettings
from tests.factories import VERSION, make_interaction
from tests.hostile_events import mutants
from tests.ingest_client import Client
from tidemill.storage.tables import DeadLetterRow

FEEDBACK_BODY: dict[str, Any] = {
    "feedback_id": None,
    "interaction_id": make_interaction().interaction_id,
    "metric": "accepted",
    "value": True,
    "source": "end_user",
    "rater": "user-17",
    "at": "2026-12-01T12:00:00Z",
}
INTERACTION_BODY: dict[str, Any] = {
    "turn": 0,
    "model": "tide",
    "subject": "user-17",
    "consent": True,
    "policy_version": VERSION,
    "content": {"messages": [{"role": "user"}], "tools": [], "completion": "lights are on"},
    "context": "lights",
    "prompt_ids": [1],
    "completion_ids": [2],
    "behaviour_logprobs": [-0.5],
    "kept_mass": [1.0],
    "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 7, "max_tokens": 8},
    "tool_calls": [],
    "finish_reason": "stop",
    "latency_ms": 1.5,
    "served_at": "2026-12-01T12:00:00Z",
}
PATHS = {"/v1/feedback": FEEDBACK_BODY, "/v1/interactions": INTERACTION_BODY}
FINE = {200, 202, 409, 413, 422}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("api")
    client = Client(folder, IngestSettings(max_body_bytes=65_536, key_cache_s=300))
    yield client
    client.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_mutated_body_is_taken_or_refused(client: Client, path: str) -> None:
    bodies = set(mutants(json.dumps(PATHS[path]).encode()))
    answers = [client.post(body, path) for body in sorted(bodies)]
    assert {answer.status_code for answer in answers} <= FINE
    client.work()
    assert "undecodable" not in dead_letters(client)


def test_a_mutated_item_spoils_no_batch(client: Client) -> None:
    items = [item for item in mutants(json.dumps(FEEDBACK_BODY).encode()) if is_json(item)]
    answer = client.post(b'{"feedback":[' + b",".join(items) + b"]}", "/v1/feedback:batch")
    assert answer.status_code == 207
    assert len(answer.json()["items"]) == len(items)
    statuses = {item["status"] for item in answer.json()["items"]}
    assert statuses <= {"accepted", "duplicate", "rejected"}


@pytest.mark.parametrize("path", [*PATHS, "/v1/feedback:batch"])
def test_any_bytes_are_no_body(client: Client, path: str) -> None:
    @given(st.binary())
    @settings(max_examples=50, deadline=None)
    def check(body: bytes) -> None:
        assert client.post(body, path).status_code == 422

    check()


@pytest.mark.parametrize("served_at", ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z"])
def test_a_time_before_all_calendars_is_422(client: Client, served_at: str) -> None:
    answer = client.post(INTERACTION_BODY | {"served_at": served_at}, "/v1/interactions")
    assert answer.status_code == 422
    assert "year" in answer.json()["detail"]
    late = client.post(FEEDBACK_BODY | {"at": "9999-12-31T23:59:59-14:00"})
    assert (late.status_code, late.json()["field"]) == (422, "at")


@pytest.mark.parametrize("length", ["\u00b2", "9" * 5000, "-1", "x"])
def test_a_strange_content_length_is_not_believed(client: Client, length: str) -> None:
    answer = client.post(b"{}", headers={"content-length": length})
    assert answer.status_code == 422


def is_json(item: bytes) -> bool:
    try:
        from_json(item, allow_inf_nan=False)
    except ValueError:
        return False
    return True


def dead_letters(client: Client) -> set[str]:
    with client.database.reading() as session:
        return set(session.scalars(select(DeadLetterRow.reason)))
