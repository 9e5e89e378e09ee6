"""Clients without ids of their own: a repeated `Idempotency-Key` counts once, for good."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.settings import IngestSettings
from tests.factories import NOW
from tests.ingest_client import GOOD, Client
from tidemill.contracts.events import FEEDBACK
from tidemill.storage.keys import create_key

KEY = {"idempotency-key": "order-7"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings())
    yield client
    client.close()


def test_a_repeat_is_a_duplicate_also_after_a_restart(client: Client) -> None:
    first = client.post(GOOD, headers=KEY)
    assert first.status_code == 202
    for _ in range(2):
        repeat = client.post(GOOD, headers=KEY)
        assert repeat.status_code == 200
        assert repeat.json() == first.json() | {"status": "duplicate"}
        # The second time only the database remembers, as after a restart.
        client.work()
        client.server.acceptor.known_feedback._recent.clear()
    assert client.server.acceptor.num_acknowledged[FEEDBACK] == 1


def test_another_body_under_the_same_key_is_422_with_its_id(client: Client) -> None:
    first = client.post(GOOD, headers=KEY).json()
    answer = client.post(GOOD | {"value": False}, headers=KEY)
    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["field"], problem["feedback_id"]) == ("Idempotency-Key", first["feedback_id"])


def test_a_key_whose_request_is_not_answered_is_409(client: Client) -> None:
    with client.database.transaction() as session:
        public_id, text = create_key(
            session, tenant="default", scopes=["feedback:write"], label="", now=NOW
        )
    caller = client.server._find_key(text)
    assert caller is not None
    assert caller.public_id == public_id
    with client.server.api.idempotency.hold("order-7", caller):
        assert client.post(GOOD, headers=KEY, key=text).status_code == 409
        assert client.post(GOOD, headers=KEY).status_code == 202
    assert client.post(GOOD, headers=KEY, key=text).status_code == 202


def test_a_503_leaves_the_key_usable(client: Client) -> None:
    sink, client.server.acceptor.appends.sink = client.server.acceptor.appends.sink, None
    made = client.post(GOOD, headers=KEY)
    assert made.status_code == 503
    client.server.acceptor.appends.sink = sink
    again = client.post(GOOD, headers=KEY)
    assert (again.status_code, again.json()["feedback_id"]) == (202, made.json()["feedback_id"])


def test_the_id_in_the_body_wins(client: Client) -> None:
    for feedback_id in ("a", "b"):
        answer = client.post(GOOD | {"feedback_id": feedback_id}, headers=KEY)
        assert answer.json() == {"feedback_id": feedback_id, "status": "accepted"}
    conflict = client.post(GOOD | {"feedback_id": "a", "value": False}, headers=KEY)
    assert conflict.status_code == 409


def test_in_a_batch_each_item_has_its_own_id(client: Client) -> None:
    def send(*items: dict[str, Any]) -> list[str]:
        answer = client.post({"feedback": list(items)}, "/v1/feedback:batch", headers=KEY)
        assert answer.status_code == 207
        return [one["status"] for one in answer.json()["items"]]

    named = GOOD | {"feedback_id": "f"}
    assert send(GOOD, named, GOOD) == ["accepted"] * 3
    assert send(GOOD, named, GOOD) == ["duplicate"] * 3
    assert send(GOOD, named, GOOD | {"value": False}) == ["duplicate", "duplicate", "rejected"]


def test_what_is_no_key_is_422(client: Client) -> None:
    answer = client.post(GOOD, headers={"idempotency-key": "two words"})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")
