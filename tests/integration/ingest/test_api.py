"""The API as a caller meets it, on a real database and the embedded log."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.settings import IngestSettings
from tests.factories import make_interaction
from tests.ingest_client import GOOD, INTERACTION, SERVED, Client
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS, FeedbackReceived
from tidemill.contracts.ids import trajectory_of
from tidemill.eventlog.opening import open_log
from tidemill.process import Pulse
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.tables import FeedbackRow, InteractionRow, metadata


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(max_batch_items=5, max_body_bytes=4096))
    yield client
    client.close()


def test_a_202_means_that_the_log_has_it(client: Client) -> None:
    answer = client.post(GOOD | {"feedback_id": "f", "rater": "joe"})
    assert (answer.status_code, answer.json()) == (202, {"feedback_id": "f", "status": "accepted"})
    log = open_log(client.shared)
    records = [
        record
        for partition in log.bounds(FEEDBACK)
        for record in log.read(FEEDBACK, partition, offset=0, max_records=10)
    ]
    log.close()
    (record,) = records
    event = FeedbackReceived.model_validate_json(record.value)
    assert (event.feedback_id, event.tenant, event.value) == ("f", "default", True)
    assert b"joe" not in record.value


def test_an_id_is_returned_where_none_was_sent(client: Client) -> None:
    answer = client.post(GOOD)
    assert answer.status_code == 202
    assert answer.json()["feedback_id"]


def test_a_repeat_is_harmless_and_a_conflict_is_409(client: Client) -> None:
    body = GOOD | {"feedback_id": "f"}
    assert client.post(body).status_code == 202
    for _ in range(2):
        repeat = client.post(body)
        assert (repeat.status_code, repeat.json()["status"]) == (200, "duplicate")
        conflict = client.post(body | {"value": False})
        assert conflict.status_code == 409
        # The second time only the database remembers.
        client.work()
        client.server.acceptor.known_feedback._recent.clear()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"metric": NaN}',
        json.dumps(GOOD | {"value": float("nan")}).encode(),
        json.dumps(GOOD | {"metric": "stars", "value": float("inf")}).encode(),
        json.dumps(GOOD | {"value": {"comment": "\0"}, "metric": "note"}).encode(),
        b'{"value": "\\ud800"}',
        b'{"x": ' + b"[" * 1500 + b"]" * 1500 + b"}",
        b"\xff\xfe",
    ],
)
def test_a_body_that_is_no_feedback_is_422_and_says_so_in_json(client: Client, body: bytes) -> None:
    answer = client.post(body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == 422


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "nobody"}, "not declared"),
        ({"value": 0.5}, "accepted: the metric is a bool"),
        ({"metric": "stars", "value": 9}, "outside"),
        ({"colour": "red"}, "unknown field colour"),
        ({"interaction_id": "x"}, "interaction_id: must be"),
    ],
)
def test_a_refusal_says_what_was_wrong(client: Client, change: dict[str, Any], words: str) -> None:
    answer = client.post(GOOD | change)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


def test_without_a_key_401_without_the_scope_403(client: Client) -> None:
    assert client.post(GOOD, key="tdm_wrong").status_code == 401
    assert client.post(GOOD, key="").headers["www-authenticate"] == "Bearer"
    assert client.post(GOOD, key=client.keys["read"]).status_code == 403
    assert (
        client.call("GET", "/v1/feedback/f", key=client.keys["feedback:write"]).status_code == 403
    )
    assert client.post(SERVED, "/v1/interactions", key=client.keys["read"]).status_code == 403


def test_too_large_a_body_is_413(client: Client) -> None:
    assert client.post(b" " * 5000).status_code == 413


def test_a_batch_has_an_answer_for_each_item(client: Client) -> None:
    items = [
        GOOD | {"feedback_id": "a"},
        {"x": 1},
        GOOD | {"feedback_id": "a"},
        GOOD | {"feedback_id": "a", "value": False},
        GOOD | {"feedback_id": "b", "at": "2026-12-01T12:00:00Z"},
    ]
    answer = client.post({"feedback": items}, "/v1/feedback:batch")
    assert answer.status_code == 207
    found = [(one["index"], one["status"], one["feedback_id"]) for one in answer.json()["items"]]
    assert found == [
        (0, "accepted", "a"),
        (1, "rejected", None),
        (2, "duplicate", "a"),
        (3, "rejected", "a"),
        (4, "accepted", "b"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"feedback": []},
        {"feedback": {}},
        {"feedback": [GOOD] * 6},
        b"{",
        b'{"feedback":NaN}',
    ],
)
def test_a_batch_that_is_none_is_422(client: Client, body: Any) -> None:
    assert client.post(body, "/v1/feedback:batch").status_code == 422


def test_a_batch_may_have_a_line_for_each_item(client: Client) -> None:
    lines = [
        json.dumps(GOOD | {"feedback_id": "a"}).encode(),
        b"{",
        b"",
        b"[" * 3000,
        json.dumps(GOOD | {"value": float("nan")}).encode() + b"\r",
        json.dumps(GOOD | {"feedback_id": "b"}).encode(),
    ]
    headers = {"content-type": "Application/X-NDJSON; charset=utf-8"}
    answer = client.post(b"\n".join(lines) + b"\n", "/v1/feedback:batch", headers=headers)
    assert answer.status_code == 207
    found = [(one["index"], one["status"], one["feedback_id"]) for one in answer.json()["items"]]
    assert found == [
        (0, "accepted", "a"),
        (1, "rejected", None),
        (2, "rejected", None),
        (3, "rejected", None),
        (4, "accepted", "b"),
    ]
    reasons = [one["reason"] for one in answer.json()["items"][1:4]]
    assert all("not JSON" in reason for reason in reasons[:2])
    assert "value" in reasons[2]
    for body in (b"", b"\n \n", b"{}\n" * 6):
        answer = client.post(body, "/v1/feedback:batch", headers=headers)
        assert answer.status_code == 422
        assert "1 to 5 items" in answer.json()["detail"]


def test_the_declared_metrics_can_be_read(client: Client) -> None:
    answer = client.call("GET", "/v1/metrics-config")
    assert answer.status_code == 200
    metrics = client.server.acceptor.metrics
    body = answer.json()
    assert body.pop("reward_spec_hash") == metrics.reward_spec_hash
    assert MetricsFile.model_validate(body) == metrics
    writer = client.keys["feedback:write"]
    assert client.call("GET", "/v1/metrics-config", key=writer).status_code == 403


def test_the_ledger_state_of_a_feedback_can_be_read(client: Client) -> None:
    client.post(GOOD | {"feedback_id": "f"})
    assert client.call("GET", "/v1/feedback/f").json()["state"] == "accepted"
    client.work()
    found = client.call("GET", "/v1/feedback/f").json()
    assert (found["state"], found["metric"], found["value"]) == ("pending", "accepted", True)
    assert client.call("GET", "/v1/feedback/unknown").status_code == 404
    stranger = client.key("admin", tenant="other")
    assert client.call("GET", "/v1/feedback/f", key=stranger).status_code == 404


def test_a_conflict_that_slipped_past_is_seen_at_its_id(client: Client) -> None:
    client.post(GOOD | {"feedback_id": "f"})
    client.server.acceptor.known_feedback._recent.clear()  # as if another process had taken it
    assert client.post(GOOD | {"feedback_id": "f", "value": False}).status_code == 202
    client.work()
    (letter,) = client.call("GET", "/v1/feedback/f").json()["dead_letters"]
    assert letter["reason"] == "conflicting_body"


@pytest.mark.parametrize(
    ("change", "detail"),
    [
        ({"kept_mass": [0.0, 1.0, 1.0]}, "kept_mass.0: Input should be greater than 0"),
        ({"prompt_ids": [1, -1]}, "prompt_ids.1: Input should be greater than or equal to 0"),
        ({"behaviour_logprobs": [-1e308, 0, 0]}, "behaviour_logprobs.0: Input should be greater"),
    ],
)
def test_an_interaction_that_nobody_can_learn_from_is_refused(
    client: Client, change: dict[str, object], detail: str
) -> None:
    answer = client.post(SERVED | change, "/v1/interactions")
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(detail)


def test_a_product_that_serves_itself_reports_its_interactions(client: Client) -> None:
    answer = client.post(SERVED, "/v1/interactions")
    assert answer.status_code == 202
    assert answer.json()["interaction_id"] == INTERACTION.interaction_id
    assert client.post(SERVED, "/v1/interactions").json()["status"] == "duplicate"
    assert client.post(SERVED | {"turn": 1}, "/v1/interactions").status_code == 409
    mismatch = SERVED | {"trajectory_id": make_interaction().trajectory_id}
    assert client.post(mismatch, "/v1/interactions").status_code == 422
    path = f"/v1/interactions/{INTERACTION.interaction_id}"
    assert client.call("GET", path).status_code == 404
    client.post(GOOD | {"feedback_id": "f"})
    client.work()
    found = client.call("GET", path).json()
    assert (found["state"], found["arm"], found["reward"]) == ("open", "external", None)
    assert client.call("GET", "/v1/feedback/f").json()["state"] == "joined"
    with client.database.reading() as session:
        assert session.get_one(InteractionRow, (INTERACTION.interaction_id, "default"))
        assert session.get_one(FeedbackRow, ("default", "f")).state == "joined"


def test_without_a_log_it_is_503_with_the_time_to_come_again(client: Client) -> None:
    client.server._disconnect()
    client.server.acceptor.appends.sink = None
    answer = client.post(GOOD)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    batch = client.post({"feedback": [GOOD]}, "/v1/feedback:batch")
    assert batch.json()["items"][0]["status"] == "retry"


@pytest.mark.parametrize("path", ["/v1/feedback", "/v1/feedback:batch"])
def test_a_503_names_the_id_with_which_a_repeat_counts_once(client: Client, path: str) -> None:
    sink, client.server.acceptor.appends.sink = client.server.acceptor.appends.sink, None
    is_batch = path.endswith("batch")
    body = {"feedback": [GOOD]} if is_batch else GOOD
    answer = client.post(body, path).json()
    made = answer["items"][0]["feedback_id"] if is_batch else answer["feedback_id"]
    client.server.acceptor.appends.sink = sink
    for status in ("accepted", "duplicate"):
        again = client.post(GOOD | {"feedback_id": made})
        assert again.json() == {"feedback_id": made, "status": status}


def test_a_503_names_the_ids_of_an_interaction(client: Client) -> None:
    sink, client.server.acceptor.appends.sink = client.server.acceptor.appends.sink, None
    unnamed = {name: value for name, value in SERVED.items() if name != "interaction_id"}
    answer = client.post(unnamed, "/v1/interactions")
    assert answer.status_code == 503
    ids = {name: answer.json()[name] for name in ("interaction_id", "trajectory_id")}
    assert trajectory_of(ids["interaction_id"]) == ids["trajectory_id"]
    client.server.acceptor.appends.sink = sink
    for status in ("accepted", "duplicate"):
        again = client.post(unnamed | ids, "/v1/interactions")
        assert again.json() == ids | {"status": status}


def test_health_readiness_and_unknown_paths(client: Client) -> None:
    assert client.call("GET", "/health", key="").json() == {"status": "ok"}
    assert client.call("GET", "/ready", key="").json() == {"ready": True, "missing": []}
    assert client.call("GET", "/nowhere").json()["status"] == 404
    refused = client.call("PUT", "/v1/feedback")
    assert (refused.json()["status"], refused.headers["allow"]) == (405, "POST")
    client.server._sink = None
    assert client.call("GET", "/ready", key="").status_code == 503


def test_a_ledger_that_cannot_be_read_is_503(client: Client) -> None:
    metadata.drop_all(client.database.engine, tables=[FeedbackRow.metadata.tables["feedback"]])
    assert client.call("GET", "/v1/feedback/f").status_code == 503


@pytest.mark.parametrize("text", ["%00", "%ff", "a%20b", "x" * 5000, "%ED%A0%80"])
def test_no_database_is_asked_for_an_id_that_nothing_can_have(client: Client, text: str) -> None:
    client.call("GET", "/v1/feedback/f")  # the key is known from here on
    metadata.drop_all(client.database.engine)
    for kind in ("feedback", "interactions"):
        assert client.call("GET", f"/v1/{kind}/{text}").status_code == 404


def test_acknowledged_records_are_counted_by_topic(client: Client) -> None:
    client.post(GOOD)
    client.post(SERVED, "/v1/interactions")
    client.server._write_counts()
    assert client.server._written == {FEEDBACK: 1, INTERACTIONS: 1}
    assert set(client.server._written) <= set(TOPICS)


def test_callers_that_were_turned_away_are_shown_in_the_heartbeat(client: Client) -> None:
    client.post(GOOD)
    client.post(GOOD, key="tdm_wrong")
    pulse = Pulse(client.database, "ingest-api")
    client.server._show(pulse)
    assert pulse.counters == {"accepted": 1, "rejected_unknown_key": 1, "in_flight": 0}


def test_it_is_not_ready_without_the_database_or_the_log(client: Client) -> None:
    metadata.drop_all(client.database.engine, tables=[FeedbackRow.metadata.tables["feedback"]])
    client.server._shared = client.shared.model_copy(update={"data": client.shared.data / "none"})
    answer = client.call("GET", "/ready", key="")
    assert answer.status_code == 503
    missing = ["the database cannot be reached", "the event log cannot be reached"]
    assert answer.json() == {"ready": False, "missing": missing}
