"""Errors in the shape of the OpenAI API: each status becomes the client's own exception."""

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from serving.settings import ServingSettings
from tests.scripted_serving import KEY, Scripted, scripted_serving
from tidemill.policy.base_model import BaseModel


@pytest.fixture(scope="module")
def server(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    settings = ServingSettings(max_body_bytes=4096)
    folder = tmp_path_factory.mktemp("serving")
    with scripted_serving(base, folder, lambda _: "hello", settings=settings) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Scripted) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def ask(client: openai.OpenAI, **over: Any) -> Any:
    values = {"model": "tide", "messages": [{"role": "user", "content": "hi"}]}
    return client.chat.completions.create(**(values | over))


@pytest.mark.parametrize(
    ("over", "code", "param"),
    [
        ({"n": 2}, "unsupported_value", "n"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"extra_body": {"top_k": 2**63}}, "invalid_value", "top_k"),
        ({"seed": 2**63}, "invalid_value", "seed"),
        ({"max_tokens": 10**4000}, "invalid_value", "max_tokens"),
        ({"messages": []}, "invalid_value", "messages"),
        ({"max_tokens": 600}, "context_length_exceeded", "messages"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "context_length_exceeded", None),
        ({"extra_body": {"magic": 1}}, "unknown_parameter", "magic"),
        ({"presence_penalty": 1}, "unsupported_value", "presence_penalty"),
        ({"top_logprobs": 2}, "invalid_value", None),
        ({"response_format": {"type": "json_object"}}, "unsupported_value", "response_format"),
        ({"extra_headers": {"x-tidemill-consent": "maybe"}}, "invalid_header", None),
        ({"extra_headers": {"x-tidemill-trajectory": "7"}}, "invalid_header", None),
        ({"extra_headers": {"x-tidemill-context": "x" * 300}}, "invalid_header", None),
        ({"stop": ["a"] * 5}, "invalid_value", None),
    ],
)
def test_bad_requests(
    client: openai.OpenAI, over: dict[str, Any], code: str, param: str | None
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **over)

    assert caught.value.code == code
    assert param is None or caught.value.param == param
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("model", ["gpt-5", "tide@v9-0123456789ab", "tides"])
def test_an_unknown_model_is_not_found(client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model=model)

    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("tdm_unknown", openai.AuthenticationError),
        ("tdm_reader", openai.PermissionDeniedError),
        ("tdm_other", openai.PermissionDeniedError),
    ],
)
def test_a_bad_key_is_refused(
    server: Scripted, key: str, error: type[openai.APIStatusError]
) -> None:
    with server.client(key) as client, pytest.raises(error):
        ask(client)


def test_no_key_at_all_is_refused(server: Scripted) -> None:
    answer = httpx.get(f"{server.url}/v1/models")

    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "missing_api_key"


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"[]", 400, "invalid_value"),
        (b'{"model": "tide"}', 400, "missing_required_parameter"),
        (b" " * 5000, 413, "body_too_large"),
        (b'{"model":"tide","messages":[{"role":"user","content":"\\ud800"}]}', 400, None),
    ],
)
def test_bodies_that_are_none(
    server: Scripted, content: bytes, status: int, code: str | None
) -> None:
    answer = httpx.post(
        f"{server.url}/v1/chat/completions",
        content=content,
        headers={"authorization": f"Bearer {KEY}"},
    )

    assert answer.status_code == status
    assert code is None or answer.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("GET", "/v1/nothing", 404)],
)
def test_wrong_addresses(server: Scripted, method: str, path: str, status: int) -> None:
    answer = httpx.request(method, server.url + path)

    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_replica_that_lost_a_thread_says_so_and_takes_no_request(
    server: Scripted, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Thread(target=int, name="watcher")
    ended.start()
    ended.join()
    monkeypatch.setattr(server.service, "threads", [ended])

    health, ready = (httpx.get(f"{server.url}/{path}") for path in ("health", "ready"))
    assert (health.status_code, health.json()) == (503, {"status": "dead", "threads": ["watcher"]})
    assert (ready.status_code, ready.json()["ready"]) == (503, False)
    assert "watcher" in ready.json()["missing"][0]
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client)
    assert caught.value.code == "not_ready"

    monkeypatch.setattr(server.service, "is_stopping", True)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_health_ready_and_metrics(server: Scripted) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{server.url}/ready").json()["ready"] is True
    assert "tidemill_serving_completed_total" in httpx.get(f"{server.url}/metrics").text
