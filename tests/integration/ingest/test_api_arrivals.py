"""What requests are held to before anything is taken: packing, size, room, exact paths."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from ingest.api_errors import ProblemError
from ingest.arrivals import Wanted, receive
from ingest.settings import IngestSettings
from tests.ingest_client import GOOD, SERVED, Client
from tidemill.storage.keys import Scope

PATHS = {
    "/v1/feedback": GOOD,
    "/v1/feedback:batch": {"feedback": [GOOD]},
    "/v1/interactions": SERVED,
    "/v1/interactions:batch": {"interactions": [SERVED]},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(max_in_flight_bytes=1024, max_body_bytes=4096))
    yield client
    client.close()


@pytest.mark.parametrize("packing", ["gzip", "br", "GZIP", "identity, gzip", "x\u00e9"])
@pytest.mark.parametrize("path", list(PATHS))
def test_a_packed_body_is_415_and_says_what_to_do(client: Client, path: str, packing: str) -> None:
    raw = gzip.compress(json.dumps(PATHS[path]).encode())
    answer = client.post(raw, path, headers={"content-encoding": packing})
    assert (answer.status_code, answer.json()["title"]) == (415, "another form is needed")
    assert "send the body as it is, without this header" in answer.json()["detail"]
    plain = client.post(PATHS[path], path, headers={"content-encoding": "Identity"})
    assert plain.status_code in (202, 207)


def request_of(client: Client, messages: Iterator[dict[str, Any]]) -> Request:
    async def receive_next() -> dict[str, Any]:
        return next(messages)

    key = f"Bearer {client.keys['admin']}".encode()
    scope = {"type": "http", "headers": [(b"authorization", key)]}
    return Request(scope, receive_next)


def part(number: int, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": b"x" * number, "more_body": more}


def test_a_body_counts_from_its_first_byte_until_it_is_answered(client: Client) -> None:
    room = client.server.acceptor.room
    seen: list[int] = []

    def slow() -> Iterator[dict[str, Any]]:
        yield part(600)
        seen.append(room.num_bytes)
        yield part(200, more=False)

    async def all_requests() -> None:
        wanted = Wanted(Scope.FEEDBACK_WRITE, 4096)
        with await receive(client.server.api, request_of(client, slow()), wanted) as arrival:
            assert (len(arrival.body), room.num_bytes, seen) == (800, 800, [600])
            other = request_of(client, iter([part(200), part(200, more=False)]))
            with pytest.raises(ProblemError, match="1000 bytes are on their way") as caught:
                await receive(client.server.api, other, wanted)
            assert (caught.value.status, caught.value.headers["retry-after"]) == (429, "1")
            assert room.num_bytes == 800
        assert room.num_bytes == 0

    asyncio.run(all_requests())
    assert client.post(GOOD).status_code == 202
    assert client.post(b"{").status_code == 422
    assert (room.num_bytes, room.num_records) == (0, 0)


def test_the_time_for_a_key_is_part_of_the_time_to_answer(client: Client) -> None:
    async def once() -> float:
        loop = asyncio.get_running_loop()
        clock = iter([100.0, 100.5, 107.0])
        request = request_of(client, iter([part(10, more=False)]))
        # The key is asked for first, while the clock still goes.
        await client.server.api.caller(request, Scope.READ)
        loop.time = lambda: next(clock)  # type: ignore[method-assign]
        wanted = Wanted(Scope.FEEDBACK_WRITE, 4096)
        try:
            with await receive(client.server.api, request, wanted) as arrival:
                return arrival.deadline_s
        finally:
            del loop.time

    # The body took 6.5 s, which are the caller's own.
    answer_within_s = client.server.api.settings.answer_within_s
    assert asyncio.run(once()) == pytest.approx(107.0 + answer_within_s - 0.5)


def test_settings_leave_time_for_the_log() -> None:
    with pytest.raises(ValueError, match=r"look_up_timeout_s 0\.9 leaves no time"):
        IngestSettings(look_up_timeout_s=0.9)


@pytest.mark.parametrize("path", [*PATHS, "/v1/logs"])
@pytest.mark.parametrize("after", ["%0a", "%0A%0A", "%0d%0a", "%20", "/", "%00"])
def test_only_the_exact_path_is_a_route(client: Client, path: str, after: str) -> None:
    answer = client.post(PATHS.get(path, {}), path + after)
    assert (answer.status_code, answer.json()["title"]) == (404, "not found")
    assert client.server.acceptor.num_answered == {}


@pytest.mark.parametrize("path", ["/health", "/ready", "/metrics", "/v1/metrics-config"])
def test_a_line_break_is_no_part_of_a_path_that_tells(client: Client, path: str) -> None:
    assert client.call("GET", path).status_code == 200
    assert client.call("GET", f"{path}%0a").status_code == 404


def test_a_subject_with_a_line_break_is_not_the_one_without(client: Client) -> None:
    ids = {
        client.call("DELETE", f"/v1/subjects/{text}").json()["request_id"]
        for text in ("joe", "joe%0a", "joe%0ajoe", "joe")
    }
    assert len(ids) == 3
