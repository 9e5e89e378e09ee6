"""An end user's request to be forgotten is kept durably, once, and without the user's own id."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from ingest.settings import IngestSettings
from tests.ingest_client import Client
from tidemill.storage.tables import ErasureRequestRow, InteractionRow, metadata


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings())
    yield client
    client.close()


def rows(client: Client) -> list[ErasureRequestRow]:
    with client.database.reading() as session:
        return list(session.scalars(select(ErasureRequestRow)))


def test_a_request_is_queued_once_and_its_state_can_be_read(client: Client) -> None:
    first = client.call("DELETE", "/v1/subjects/user-17")
    assert first.status_code == 202
    assert (first.json()["state"], first.json()["finished_at"]) == ("queued", None)
    assert client.call("DELETE", "/v1/subjects/user-17").json() == first.json()
    path = f"/v1/erasures/{first.json()['request_id']}"
    found = client.call("GET", path)
    assert (found.status_code, found.json()) == (200, first.json())
    other = client.call("DELETE", "/v1/subjects/user-18").json()
    assert other["request_id"] != first.json()["request_id"]


def test_only_the_hash_that_interactions_hold_is_kept(client: Client) -> None:
    client.call("DELETE", "/v1/subjects/joe%2Fhome%40example.com")
    (row,) = rows(client)
    assert row.subject == client.server.api.hasher.subject("default", "joe/home@example.com")
    assert row.requested_by == client.keys["admin"].split("_")[1]
    assert not any("joe" in str(value) for value in vars(row).values())


@pytest.mark.parametrize("raw", ["", "%00", "%ff", "x" * 257, "%ED%A0%80"])
def test_what_is_no_id_is_422_and_nothing_is_queued(client: Client, raw: str) -> None:
    answer = client.call("DELETE", f"/v1/subjects/{raw}")
    assert (answer.status_code, answer.json()["field"]) == (422, "subject")
    assert rows(client) == []


def test_only_an_admin_may_ask(client: Client) -> None:
    for key in (client.keys["read"], client.keys["feedback:write"]):
        assert client.call("DELETE", "/v1/subjects/a", key=key).status_code == 403
        assert client.call("GET", "/v1/erasures/a", key=key).status_code == 403
    assert client.call("DELETE", "/v1/subjects/a", key="").status_code == 401


def test_a_request_of_another_tenant_is_none(client: Client) -> None:
    request_id = client.call("DELETE", "/v1/subjects/a").json()["request_id"]
    stranger = client.key("admin", tenant="other")
    answers = [
        client.call("GET", f"/v1/erasures/{one}", key=stranger)
        for one in (request_id, request_id[::-1], "no-id")
    ]
    assert [one.status_code for one in answers] == [404] * 3
    assert len({one.content for one in answers}) == 1
    theirs = client.call("DELETE", "/v1/subjects/a", key=stranger).json()["request_id"]
    assert theirs != request_id


def test_without_a_database_nothing_is_promised(client: Client) -> None:
    client.call("GET", "/v1/erasures/a")  # the key is known from here on
    metadata.drop_all(
        client.database.engine, tables=[InteractionRow.metadata.tables["erasure_requests"]]
    )
    assert client.call("DELETE", "/v1/subjects/a").status_code == 503
