import asyncio
from typing import Any

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ingest.front import Front


def answers_of(*messages: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Exception]]:
    """Return what is sent to whoever sends these messages, and the errors that were answered."""
    sent: list[dict[str, Any]] = []
    errors: list[Exception] = []
    incoming = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(incoming)

    async def send(message: Any) -> None:
        sent.append(message)

    async def echo(request: Request) -> Response:
        body = await request.body()
        if not body:
            raise ValueError("empty")
        return PlainTextResponse(body)

    async def answer_error(_: Request, error: Exception) -> Response:
        errors.append(error)
        return PlainTextResponse("failed", 500)

    front = Front(FastAPI(), {"/x": echo}, answer_error)
    scope = {"type": "http", "method": "POST", "path": "/x", "headers": []}
    asyncio.run(front(scope, receive, send))
    return sent, errors


def test_a_client_that_goes_away_is_no_error_and_gets_no_answer() -> None:
    begun = {"type": "http.request", "body": b'{"a', "more_body": True}
    assert answers_of(begun, {"type": "http.disconnect"}) == ([], [])


def test_an_error_is_answered() -> None:
    sent, errors = answers_of({"type": "http.request", "body": b""})
    assert sent[0]["status"] == 500
    assert [str(error) for error in errors] == ["empty"]
    sent, errors = answers_of({"type": "http.request", "body": b"good"})
    assert (sent[0]["status"], sent[1]["body"], errors) == (200, b"good", [])
