"""The HTTP API for feedback and for interactions of products that serve themselves."""

import logging
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from ingest.api_document import build_document
from ingest.api_errors import MEDIA_TYPE, ProblemError
from ingest.api_otlp import Evaluations
from ingest.api_parts import Api
from ingest.api_reading import Reading
from ingest.api_subjects import Subjects
from ingest.api_writing import Writing
from ingest.front import Front, Handler
from tidemill.errors import StorageError

_log = logging.getLogger(__name__)


def build_app(api: Api) -> Front:
    """Return the application around its parts."""
    writing = Writing(api)
    posts: dict[str, Handler] = {
        "/v1/feedback": writing.post_feedback,
        "/v1/feedback:batch": writing.post_feedback_batch,
        "/v1/interactions": writing.post_interaction,
        "/v1/interactions:batch": writing.post_interaction_batch,
        "/v1/logs": Evaluations(api, writing).post_logs,
    }
    return Front(_build_routes(api, posts), posts, _answer_error)


def _build_routes(api: Api, posts: Mapping[str, Handler]) -> FastAPI:
    app = FastAPI(
        title="Tidemill feedback API",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        # Without it an empty id would be answered with the way to another route.
        redirect_slashes=False,
        exception_handlers=_HANDLERS,
    )
    add = app.add_api_route
    reading, subjects = Reading(api), Subjects(api)
    for path, handler in posts.items():
        add(path, handler, methods=["POST"])
    add("/v1/feedback/{feedback_id}", reading.get_feedback, methods=["GET"])
    add("/v1/interactions/{interaction_id}", reading.get_interaction, methods=["GET"])
    add("/v1/metrics-config", reading.get_metrics_config, methods=["GET"])
    add("/v1/subjects/{subject:path}", subjects.delete_subject, methods=["DELETE"])
    add("/v1/erasures/{request_id}", subjects.get_erasure, methods=["GET"])
    add("/metrics", reading.get_figures, methods=["GET"])
    add("/openapi.json", _openapi, methods=["GET"])
    add("/health", reading.health, methods=["GET"])
    add("/ready", reading.ready, methods=["GET"])
    for route in app.routes:
        if isinstance(route, Route):
            route.path_regex = _exact(route.path_regex)
    return app


def _exact(path: re.Pattern[str]) -> re.Pattern[str]:
    """Return the pattern of a route for whole paths alone, line breaks in a parameter included.

    Starlette ends its own with `$`, which also matches before a last line break: `user%0a` would
    be the user without it.
    """
    return re.compile(path.pattern.removesuffix("$") + r"\Z", path.flags | re.DOTALL)


async def _openapi(_: Request) -> Response:
    return JSONResponse(_document())


@cache
def _document() -> dict[str, Any]:
    # Asked for without a key, so it must cost nothing.
    return build_document(version("tidemill"))


async def _problem(_: Request, error: Exception) -> Response:
    if not isinstance(error, ProblemError):
        raise error
    return JSONResponse(error.body, error.status, error.headers, media_type=MEDIA_TYPE)


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    answer = await _problem(request, ProblemError(error.status_code, str(error.detail)))
    answer.headers.update(error.headers or {})
    return answer


async def _no_database(request: Request, error: Exception) -> Response:
    _log.warning("the database did not answer: %s", error)
    return await _problem(request, ProblemError(503, "the database does not answer; try again"))


async def _unexpected(request: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    return await _problem(request, ProblemError(500, "this failed here; see the log of ingest-api"))


_HANDLERS: dict[Any, Any] = {
    ProblemError: _problem,
    HTTPException: _http_error,
    StorageError: _no_database,
    Exception: _unexpected,
}


async def _answer_error(request: Request, error: Exception) -> Response:
    for kind, handler in _HANDLERS.items():
        if isinstance(error, kind):
            answer: Response = await handler(request, error)
            return answer
    raise error
