"""Interactions of products that serve themselves, in batches, and what tenants learn of others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.settings import IngestSettings
from tests.factories import make_interaction
from tests.ingest_client import GOOD, SERVED, Client
from tidemill.contracts.events import INTERACTIONS
from tidemill.contracts.ids import trajectory_of

BATCH = "/v1/interactions:batch"
NDJSON = {"content-type": "application/x-ndjson"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(max_batch_items=6))
    yield client
    client.close()


def served(**over: Any) -> dict[str, Any]:
    """Return the body of another interaction."""
    return SERVED | {"interaction_id": make_interaction().interaction_id} | over


def statuses(answer: Any) -> list[tuple[int, str]]:
    assert answer.status_code == 207
    return [(one["index"], one["status"]) for one in answer.json()["items"]]


@pytest.mark.parametrize("as_lines", [False, True])
def test_one_bad_interaction_never_spoils_the_rest(client: Client, as_lines: bool) -> None:
    first = served()
    bodies = [first, {"turn": 0}, first, first | {"turn": 1}, served(prompt_ids=[-1]), served()]
    lines = b"\n".join(json.dumps(body).encode() for body in bodies)
    document = json.dumps({"interactions": bodies}).encode()
    answer = client.post(lines if as_lines else document, BATCH, headers=NDJSON if as_lines else {})
    assert statuses(answer) == [
        (0, "accepted"),
        (1, "rejected"),
        (2, "duplicate"),
        (3, "rejected"),
        (4, "rejected"),
        (5, "accepted"),
    ]
    items = answer.json()["items"]
    assert items[0]["trajectory_id"] == trajectory_of(first["interaction_id"])
    assert items[1]["interaction_id"] is items[1]["trajectory_id"] is None
    assert "another body" in items[3]["reason"]
    assert "prompt_ids" in items[4]["reason"]
    assert client.server.acceptor.num_acknowledged[INTERACTIONS] == 2


def test_an_interaction_too_large_for_the_log_is_rejected_by_itself(client: Client) -> None:
    large = served(content={"messages": [], "completion": "x" * (1 << 20)})
    answer = client.post({"interactions": [large, served()]}, BATCH)
    assert statuses(answer) == [(0, "rejected"), (1, "accepted")]
    assert "bytes" in answer.json()["items"][0]["reason"]


def test_without_a_log_each_interaction_says_with_which_ids_to_come_again(client: Client) -> None:
    client.server.acceptor.appends.sink = None
    unnamed = {name: value for name, value in SERVED.items() if name != "interaction_id"}
    (item,) = client.post({"interactions": [unnamed]}, BATCH).json()["items"]
    assert item["status"] == "retry"
    assert item["interaction_id"].startswith(item["trajectory_id"])


@pytest.mark.parametrize(
    "body", [{}, {"feedback": [SERVED]}, {"interactions": []}, {"interactions": [SERVED] * 7}]
)
def test_a_batch_of_no_interactions_is_422(client: Client, body: dict[str, Any]) -> None:
    assert client.post(body, BATCH).status_code == 422


def test_a_batch_of_interactions_needs_its_own_scope(client: Client) -> None:
    key = client.keys["feedback:write"]
    assert client.post({"interactions": [SERVED]}, BATCH, key=key).status_code == 403


@pytest.mark.parametrize("is_remembered", [False, True])
def test_no_answer_tells_what_another_tenant_holds(client: Client, is_remembered: bool) -> None:
    feedback = GOOD | {"feedback_id": "f"}
    assert client.post(SERVED, "/v1/interactions").status_code == 202
    assert client.post(feedback).status_code == 202
    client.work()
    if not is_remembered:
        client.server.acceptor.known_feedback._recent.clear()
        client.server.acceptor.known_interactions._recent.clear()
    stranger = client.key("admin", tenant="other")
    # Read first: nothing was sent yet by which the stranger could have made these ids its own.
    unknown = make_interaction().interaction_id
    for kind, held, free in (
        ("interactions", SERVED["interaction_id"], unknown),
        ("feedback", "f", "g"),
    ):
        answers = [client.call("GET", f"/v1/{kind}/{one}", key=stranger) for one in (held, free)]
        assert [one.status_code for one in answers] == [404, 404]
        assert answers[0].content == answers[1].content
    other = SERVED | {"turn": 1}
    assert client.post(other, "/v1/interactions", key=stranger).status_code == 202
    (item,) = client.post({"interactions": [other | {"turn": 2}]}, BATCH, key=stranger).json()[
        "items"
    ]
    assert item["status"] == "rejected"  # against its own record of a moment ago
    assert client.post(feedback | {"value": False}, key=stranger).status_code == 202
    assert client.post(feedback, key=client.keys["admin"]).json()["status"] == "duplicate"
    # Both keep their own.
    client.work()
    for key, turn, value in ((client.keys["admin"], 0, True), (stranger, 1, False)):
        path = f"/v1/interactions/{SERVED['interaction_id']}"
        assert client.call("GET", path, key=key).json()["turn"] == turn
        found = client.call("GET", "/v1/feedback/f", key=key).json()
        assert (found["state"], found["value"], found["dead_letters"]) == ("joined", value, [])
