"""Thin handlers of the OpenAI-style calls: check, read, hand over, answer."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from serving.answers import chat_events, chat_whole, completion_events, completion_whole
from serving.callers import INTERACTION_HEADER, VERSION_HEADER, read_caller
from serving.errors import ApiError, invalid_request, model_not_found
from serving.interactions import Prompt
from serving.prompts import Defaults, chat_prompt, sampling_of, text_prompt
from serving.responses import model_item, model_list
from serving.schemas import ChatBody, CompletionBody, GenerationBody
from serving.service import Ask, Backend, CallerGoneError, Running, Service
from serving.streaming import DONE, event_bytes, json_bytes
from tidemill.policy.chat import decode_completion, encode_text, render_prompt

B = TypeVar("B", bound=BaseModel)

_JSON = "application/json"


class EventStream(Response):
    """Server-sent events of a running request; its status waits for the first one."""

    def __init__(self, running: Running, events: AsyncIterator[dict[str, Any]]) -> None:
        self._running = running
        self._events = events
        super().__init__(
            media_type="text/event-stream",
            headers={**identity_headers(running), "cache-control": "no-cache"},
        )
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send the events; an error after the first one becomes the last event."""
        async with self._running.followed(receive):
            first = await self._first()
            await send(self._start())
            if first is not None:
                await self._send_events(first, send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _first(self) -> dict[str, Any] | None:
        try:
            return await anext(self._events)
        except CallerGoneError:
            return None

    async def _send_events(self, first: dict[str, Any], send: Send) -> None:
        await send(_piece(event_bytes(first)))
        try:
            async for body in self._events:
                await send(_piece(event_bytes(body)))
        except ApiError as error:
            await send(_piece(event_bytes(error.body)))
        except CallerGoneError:
            return
        else:
            await send(_piece(DONE))

    def _start(self) -> dict[str, Any]:
        return {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }


def _piece(content: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": True}


async def chat_completions(request: Request) -> Response:
    """Answer `POST /v1/chat/completions`."""
    service = await admitted(request)
    body = await read_body(request, ChatBody, limit=service.settings.max_body_bytes)
    backend = service.require_backend()
    prompt = chat_prompt(body, render=partial(render_prompt, backend.base))
    running = service.start(
        _ask(request, body, prompt, token_limit=body.token_limit, top=body.top_logprobs or 0)
    )
    if body.stream:
        return EventStream(running, chat_events(running, body, backend.table))
    async with _whole(running, request) as answer:
        answer.body = json_bytes(await chat_whole(running, body, backend.table))
    return answer.response()


async def completions(request: Request) -> Response:
    """Answer `POST /v1/completions`."""
    service = await admitted(request)
    body = await read_body(request, CompletionBody, limit=service.settings.max_body_bytes)
    backend = service.require_backend()
    base = backend.base
    prompt = text_prompt(
        body,
        encode=partial(encode_text, base),
        decode=partial(decode_completion, base),
        num_tokens=len(backend.table.bytes_by_id),
    )
    running = service.start(
        _ask(request, body, prompt, token_limit=body.max_tokens, top=body.logprobs or 0)
    )
    if body.stream:
        return EventStream(running, completion_events(running, body, backend.table))
    async with _whole(running, request) as answer:
        answer.body = json_bytes(await completion_whole(running, body, backend.table))
    return answer.response()


async def models(request: Request) -> Response:
    """Answer `GET /v1/models`."""
    service = await admitted(request)
    created = int(service.started_at.timestamp())
    return Response(
        json_bytes(model_list(service.model_names(), created=created)), 200, None, _JSON
    )


async def model(request: Request) -> Response:
    """Answer `GET /v1/models/{name}`."""
    service = await admitted(request)
    name, known = request.path_params["name"], service.model_names()
    if name not in known:
        raise model_not_found(name, known=known)
    created = int(service.started_at.timestamp())
    return Response(json_bytes(model_item(name, created=created)), 200, None, _JSON)


async def admitted(request: Request) -> Service:
    """Return the service for a caller who may use it.

    Raises:
        ApiError: the key is missing or no good.
    """
    service: Service = request.app.state.service
    if service.settings.require_key:
        await service.keyring.require(request.headers)
    return service


async def read_body(request: Request, kind: type[B], *, limit: int) -> B:
    """Read a JSON body of bounded size.

    Raises:
        ApiError: too large, or not what the call takes.
    """
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > limit:
            raise ApiError(413, f"the body is larger than {limit} bytes", code="body_too_large")
    try:
        return kind.model_validate_json(bytes(content))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise invalid_request(first) from error


def identity_headers(running: Running) -> dict[str, str]:
    """Return what names the interaction and the version that answers."""
    draft = running.draft
    return {INTERACTION_HEADER: draft.interaction_id, VERSION_HEADER: draft.route.version}


def _ask(
    request: Request, body: GenerationBody, prompt: Prompt, *, token_limit: int | None, top: int
) -> Ask:
    service: Service = request.app.state.service
    settings = service.settings
    backend: Backend = service.require_backend()
    caller = read_caller(
        request.headers,
        user=body.user,
        tenant=service.tenant,
        hash_subject=service.hasher.subject,
        consent_default=settings.consent_default,
    )
    sampling = sampling_of(
        body,
        token_limit=token_limit,
        num_prompt=len(prompt.prompt_ids),
        max_context=backend.max_context,
        defaults=Defaults(settings.default_max_tokens, settings.default_temperature),
    )
    return Ask(
        model=body.model,
        caller=caller,
        prompt=prompt,
        sampling=sampling,
        stops=body.stops,
        is_streamed=bool(body.stream),
        top_logprobs=top,
    )


class _Answer:
    """A body under way."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self.body: bytes | None = None

    def response(self) -> Response:
        """Return the response; a caller who hung up gets an empty one, which nobody reads."""
        if self.body is None:
            return Response(status_code=499)
        return Response(self.body, 200, identity_headers(self._running), _JSON)


@contextlib.asynccontextmanager
async def _whole(running: Running, request: Request) -> AsyncIterator[_Answer]:
    answer = _Answer(running)
    with contextlib.suppress(CallerGoneError):
        async with running.followed(request.receive):
            yield answer
