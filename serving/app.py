"""The HTTP application: routes, health, and errors in the shape of the OpenAI API."""

import logging
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from serving.errors import ApiError
from serving.metrics import render_metrics
from serving.routes import chat_completions, completions, model, models
from serving.service import Service

_log = logging.getLogger(__name__)


def build_app(service: Service) -> Starlette:
    """Return the application around a service."""
    app = Starlette(
        routes=[
            Route("/health", health),
            Route("/ready", ready),
            Route("/metrics", metrics),
            Route("/v1/models", models),
            Route("/v1/models/{name}", model),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
        ],
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            Exception: _unexpected,
        },
    )
    app.state.service = service
    return app


async def health(request: Request) -> Response:
    """Tell whether every thread that the process needs lives; 503 = restart it."""
    service: Service = request.app.state.service
    if dead := service.dead:
        return JSONResponse({"status": "dead", "threads": list(dead)}, 503)
    return JSONResponse({"status": "ok"})


async def ready(request: Request) -> Response:
    """Tell whether requests can be served, and if not, what is missing."""
    service: Service = request.app.state.service
    missing = service.missing
    body: dict[str, Any] = {
        "ready": not missing,
        "missing": [missing] if missing else [],
        "versions": list(service.watcher.lineup.versions),
    }
    return JSONResponse(body, 503 if missing else 200)


async def metrics(request: Request) -> Response:
    """Return counters in Prometheus' text form."""
    return PlainTextResponse(render_metrics(request.app.state.service.figures()))


async def _api_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return JSONResponse(error.body, error.status, error.headers)


async def _http_error(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    codes = {404: "unknown_url", 405: "method_not_allowed"}
    shaped = ApiError(
        error.status_code, error.detail, code=codes.get(error.status_code, "http_error")
    )
    return JSONResponse(shaped.body, shaped.status, error.headers)


async def _unexpected(_: Request, error: Exception) -> Response:
    _log.error("a request failed", exc_info=error)
    shaped = ApiError(500, "this failed here; see the server's log", code="internal_error")
    return JSONResponse(shaped.body, shaped.status)
