"""Times of products far ahead of ours are refused; a clock that is an hour off is not."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ingest.settings import IngestSettings
from tests.ingest_client import GOOD, SERVED, Client

ROUTES = (("/v1/feedback", GOOD, "at"), ("/v1/interactions", SERVED, "served_at"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder: Path = tmp_path_factory.mktemp("api")
    client = Client(folder, IngestSettings(max_ahead_s=7200))
    yield client
    client.close()


def ahead(**by: float) -> str:
    return (datetime.now(UTC) + timedelta(**by)).isoformat()


@pytest.mark.parametrize(("path", "body", "field"), ROUTES)
@pytest.mark.parametrize(
    "moment",
    [ahead(hours=3), ahead(days=400), "9999-12-31T23:59:59Z"],
    ids=["hours", "days", "end"],
)
def test_a_time_far_ahead_is_a_problem(
    client: Client, path: str, body: dict[str, Any], field: str, moment: str
) -> None:
    before = dict(client.server.acceptor.num_acknowledged)
    answer = client.post(body | {field: moment}, path)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == field
    assert "at most 7200 s" in answer.json()["detail"]
    assert dict(client.server.acceptor.num_acknowledged) == before


@pytest.mark.parametrize(("path", "body", "field"), ROUTES)
def test_a_clock_an_hour_off_passes_and_the_past_too(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    fresh = {key: value for key, value in body.items() if key != "interaction_id"}
    if path == "/v1/feedback":
        fresh = body
    for moment in (ahead(hours=1), ahead(hours=-1), "0001-01-02T00:00:00Z"):
        assert client.post(fresh | {field: moment}, path).status_code == 202


@pytest.mark.parametrize(("path", "body", "field"), ROUTES)
def test_in_a_batch_it_is_rejected_alone(
    client: Client, path: str, body: dict[str, Any], field: str
) -> None:
    name = path.removeprefix("/v1/")
    items = [body | {field: ahead(days=2)}, body | {field: ahead()}]
    if name == "interactions":
        items[1].pop("interaction_id")
    answer = client.post({name: items}, f"{path}:batch")
    assert answer.status_code == 207
    found = answer.json()["items"]
    assert [one["status"] for one in found] == ["rejected", "accepted"]
    assert "ahead of this clock" in found[0]["reason"]


def test_the_bound_leaves_room_for_a_clock_an_hour_off() -> None:
    assert IngestSettings().max_ahead_s == 86_400
    with pytest.raises(ValueError, match="max_ahead_s"):
        IngestSettings(max_ahead_s=3599)
