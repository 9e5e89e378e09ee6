"""The HTTP API for feedback and for interactions of products that serve themselves."""

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException

from ingest.acceptor import Acceptor, Outcome, Status
from ingest.api_errors import MEDIA_TYPE, ProblemError, invalid
from ingest.api_schemas import FeedbackBody, InteractionBody
from ingest.batch_bodies import NoItem, read_items
from ingest.callers import Callers
from ingest.ledger_views import LedgerViews
from ingest.settings import IngestSettings
from tidemill.contracts.events import FeedbackReceived
from tidemill.contracts.ids import is_feedback_id, is_interaction_id
from tidemill.errors import StorageError
from tidemill.storage.keys import ApiKey, Scope
from tidemill.subjects import SubjectHasher

_log = logging.getLogger(__name__)

B = TypeVar("B", bound=BaseModel)

_LENGTH = re.compile("[0-9]{1,18}")

_STATUS = {
    Status.ACCEPTED: 202,
    Status.DUPLICATE: 200,
    Status.REJECTED: 422,
    Status.CONFLICT: 409,
    Status.RETRY: 503,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """What the routes work with."""

    settings: IngestSettings
    model: str
    callers: Callers
    hasher: SubjectHasher
    acceptor: Acceptor
    views: LedgerViews
    missing: Callable[[], list[str]]
    """What keeps the process from being ready."""

    async def post_feedback(self, request: Request) -> Response:
        """Take one feedback: 202 accepted, 200 duplicate, 409 conflict, 422, 503."""
        caller = await self._caller(request, Scope.FEEDBACK_WRITE)
        raw = await _read_body(request, self.settings.max_body_bytes)
        body = _parse(FeedbackBody, raw)
        event = self._to_event(body, caller, self.acceptor.now())
        (outcome,) = await self.acceptor.take_feedback([event])
        return _answer(outcome, {"feedback_id": event.feedback_id})

    async def post_feedback_batch(self, request: Request) -> Response:
        """Take many feedbacks: 207 with an item each, in order."""
        caller = await self._caller(request, Scope.FEEDBACK_WRITE)
        raw = await _read_body(request, self.settings.max_batch_bytes)
        items = read_items(
            raw,
            content_type=request.headers.get("content-type", ""),
            limit=self.settings.max_batch_items,
        )
        moment = self.acceptor.now()
        outcomes: list[Outcome | None] = []
        events: list[FeedbackReceived] = []
        for item in items:
            if isinstance(item, NoItem):
                outcomes.append(Outcome(Status.REJECTED, None, item.reason))
                continue
            try:
                events.append(self._to_event(FeedbackBody.model_validate(item), caller, moment))
                outcomes.append(None)
            except ValidationError as error:
                outcomes.append(Outcome(Status.REJECTED, None, invalid(error).detail))
        taken = iter(await self.acceptor.take_feedback(events))
        answers = [_item(i, one or next(taken)) for i, one in enumerate(outcomes)]
        return JSONResponse({"items": answers}, 207)

    async def post_interaction(self, request: Request) -> Response:
        """Take one interaction that the product served itself."""
        caller = await self._caller(request, Scope.INTERACTIONS_WRITE)
        raw = await _read_body(request, self.settings.max_body_bytes)
        body = _parse(InteractionBody, raw)
        try:
            event = body.to_event(
                tenant=caller.tenant,
                model=self.model,
                hasher=self.hasher,
                consent_default=self.settings.consent_default,
            )
        except ValidationError as error:
            raise invalid(error) from error
        outcome = await self.acceptor.take_interaction(event)
        return _answer(
            outcome,
            {"interaction_id": event.interaction_id, "trajectory_id": event.trajectory_id},
        )

    async def get_feedback(self, request: Request) -> Response:
        """Tell where a feedback stands in the ledger."""
        caller = await self._caller(request, Scope.READ)
        feedback_id = request.path_params["feedback_id"]
        if not is_feedback_id(feedback_id):
            # No database is asked for a text that it might refuse.
            raise ProblemError(404, "no feedback has such an id")
        found = await asyncio.to_thread(self.views.feedback, caller.tenant, feedback_id)
        if found is None:
            recent = self.acceptor.known_feedback.recall((caller.tenant, feedback_id))
            if recent is None:
                raise ProblemError(404, "no feedback with this id")
            # Durable in the log; the worker has not come to it yet.
            found = {"feedback_id": feedback_id, "state": "accepted", "dead_letters": []}
        return JSONResponse(found)

    async def get_interaction(self, request: Request) -> Response:
        """Tell where an interaction stands in the ledger, and its reward."""
        caller = await self._caller(request, Scope.READ)
        interaction_id = request.path_params["interaction_id"]
        if not is_interaction_id(interaction_id):
            raise ProblemError(404, "no interaction has such an id; it is <uuid>.<uuid>")
        found = await asyncio.to_thread(self.views.interaction, caller.tenant, interaction_id)
        if found is None:
            raise ProblemError(404, "no interaction with this id, or its record was not read yet")
        return JSONResponse(found)

    async def get_metrics_config(self, request: Request) -> Response:
        """Tell which metrics are declared, and the hash that experiences carry."""
        await self._caller(request, Scope.READ)
        return JSONResponse(self.acceptor.metrics.describe())

    async def health(self, _: Request) -> Response:
        """Tell that the process works."""
        return JSONResponse({"status": "ok"})

    async def ready(self, _: Request) -> Response:
        """Tell whether feedback can be stored, and if not, what is missing."""
        missing = self.missing()
        body = {"ready": not missing, "missing": missing}
        return JSONResponse(body, 503 if missing else 200)

    async def _caller(self, request: Request, scope: Scope) -> ApiKey:
        return await self.callers.require(request.headers.get("authorization"), scope)

    def _to_event(self, body: FeedbackBody, caller: ApiKey, moment: datetime) -> FeedbackReceived:
        return body.to_event(tenant=caller.tenant, hasher=self.hasher, received_at=moment)


def build_app(api: Api) -> FastAPI:
    """Return the application around its parts."""
    app = FastAPI(
        title="Tidemill feedback API",
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            ProblemError: _problem,
            HTTPException: _http_error,
            StorageError: _no_database,
            Exception: _unexpected,
        },
    )
    add = app.add_api_route
    feedback, interaction = _body_schema(FeedbackBody), _body_schema(InteractionBody)
    add("/v1/feedback", api.post_feedback, methods=["POST"], openapi_extra=feedback)
    add("/v1/feedback:batch", api.post_feedback_batch, methods=["POST"])
    add("/v1/interactions", api.post_interaction, methods=["POST"], openapi_extra=interaction)
    add("/v1/feedback/{feedback_id}", api.get_feedback, methods=["GET"])
    add("/v1/metrics-config", api.get_metrics_config, methods=["GET"])
    add("/v1/interactions/{interaction_id}", api.get_interaction, methods=["GET"])
    add("/health", api.health, methods=["GET"])
    add("/ready", api.ready, methods=["GET"])
    return app


async def _read_body(request: Request, limit: int) -> bytes:
    declared = request.headers.get("content-length", "")
    # What is no short number is counted as it comes.
    if _LENGTH.fullmatch(declared) and int(declared) > limit:
        raise ProblemError(413, f"the body has {declared} bytes; at most {limit}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise ProblemError(413, f"the body has more than {limit} bytes")
    return bytes(body)


def _parse(kind: type[B], raw: bytes) -> B:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        raise invalid(error) from error


def _answer(outcome: Outcome, ids: dict[str, str]) -> Response:
    status = _STATUS[outcome.status]
    if status >= 400:
        # With the ids: whoever sent none must send these again, or the repeat counts twice.
        raise ProblemError(status, outcome.reason or outcome.status.value, ids=ids)
    return JSONResponse(ids | {"status": outcome.status.value}, status)


def _item(index: int, outcome: Outcome) -> dict[str, Any]:
    # A conflict is a rejection with its own reason: sending it again never helps.
    status = Status.REJECTED if outcome.status is Status.CONFLICT else outcome.status
    return {
        "index": index,
        "status": status.value,
        "feedback_id": outcome.record_id,
        "reason": outcome.reason,
    }


def _body_schema(kind: type[BaseModel]) -> dict[str, Any]:
    content = {"application/json": {"schema": kind.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def _problem(_: Request, error: Exception) -> Response:
    if not isinstance(error, ProblemError):
        raise error
    return JSONResponse(error.body, error.status, error.headers, media_type=MEDIA_TYPE)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return await _problem(request, ProblemError(error.status_code, str(error.detail)))


async def _no_database(request: Request, error: Exception) -> Response:
    _log.warning("the ledger cannot be read: %s", error)
    return await _problem(request, ProblemError(503, "the ledger cannot be read now; try again"))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return await _problem(request, ProblemError(500, "this failed here; see the log of ingest-api"))
