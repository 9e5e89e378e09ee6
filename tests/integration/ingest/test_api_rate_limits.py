"""A key or a rater that sends too much is told when to come again; nobody else notices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.settings import IngestSettings, RateLimitSettings
from tests.ingest_client import GOOD, SERVED, Client

LIMITS = RateLimitSettings(key_per_s=0.1, key_burst=3, rater_per_s=0.1, rater_burst=1)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(rate_limits=LIMITS))
    yield client
    client.close()


def test_a_key_over_its_limit_is_429_with_the_time_to_come_again(client: Client) -> None:
    assert [client.post(GOOD).status_code for _ in range(2)] == [202, 202]
    assert client.post(SERVED, "/v1/interactions").status_code == 202
    for path, body in (
        ("/v1/feedback", GOOD),
        ("/v1/feedback:batch", {"feedback": [GOOD]}),
        ("/v1/interactions", SERVED),
        ("/v1/interactions:batch", {"interactions": [SERVED]}),
    ):
        answer = client.post(body, path)
        assert answer.status_code == 429
        assert 1 <= int(answer.headers["retry-after"]) <= 10
        assert answer.headers["content-type"] == "application/problem+json"
    other = client.key("feedback:write")
    assert client.post(GOOD, key=other).status_code == 202
    assert client.call("GET", "/v1/metrics-config").status_code == 200


def test_a_batch_counts_as_its_records(client: Client) -> None:
    batch = {"feedback": [GOOD] * 4}
    assert client.post(batch, "/v1/feedback:batch").status_code == 207
    answer = client.post(GOOD)
    assert answer.status_code == 429
    # Four of three were taken: the debt of one is paid back first.
    assert 10 < int(answer.headers["retry-after"]) <= 20


def test_a_rater_over_its_limit_spoils_neither_key_nor_batch(client: Client) -> None:
    keys = [client.key("feedback:write") for _ in range(3)]
    vote = GOOD | {"rater": "joe"}
    assert client.post(vote, key=keys[0]).status_code == 202
    refused = client.post(vote | {"feedback_id": "f"}, key=keys[1])
    assert (refused.status_code, refused.json()["feedback_id"]) == (429, "f")
    batch = [vote | {"feedback_id": "g"}, GOOD, GOOD | {"rater": "ann"}]
    items = client.post({"feedback": batch}, "/v1/feedback:batch", key=keys[2]).json()["items"]
    assert [one["status"] for one in items] == ["retry", "accepted", "accepted"]
    assert items[0]["feedback_id"] == "g"
    assert "come again in" in items[0]["reason"]


def test_raters_of_other_tenants_are_others(client: Client) -> None:
    vote = GOOD | {"rater": "joe"}
    assert client.post(vote).status_code == 202
    stranger = client.key("feedback:write", tenant="other")
    assert client.post(vote, key=stranger).status_code == 202
    assert client.post(vote).status_code == 429


def test_no_limit_holds_unless_it_is_set() -> None:
    defaults = RateLimitSettings()
    assert (defaults.key_per_s, defaults.rater_per_s) == (0, 0)
