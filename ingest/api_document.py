"""The OpenAPI document of the feedback API. Pure.

Written here, not gathered from the routes: they read raw bodies, which no framework can describe.
A test holds the routes and their answers to it.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ingest import api_answers as answers
from ingest import api_examples as examples
from ingest.api_errors import MEDIA_TYPE
from ingest.api_schemas import FeedbackBody, InteractionBody
from ingest.batch_bodies import NDJSON
from tidemill.storage.keys import Scope

Json = dict[str, Any]

_REFUSALS = {
    401: "no valid key",
    403: "the key lacks the scope",
    404: "unknown to this tenant",
    409: "the id is known with another body, or the key's first request is still under way",
    413: "too large",
    415: "a content type or a `Content-Encoding` that is not read here",
    422: "not valid; `field` and `detail` say why",
    429: "too much at once, or over a limit; come again after `Retry-After`",
    503: "cannot be stored or told now; come again after `Retry-After`",
}
_OF_ALL = (401, 403, 503)
_OF_WRITING = (401, 403, 409, 413, 415, 422, 429, 503)

_MODELS: tuple[type[BaseModel], ...] = (
    FeedbackBody,
    InteractionBody,
    answers.Problem,
    answers.FeedbackAnswer,
    answers.FeedbackItems,
    answers.EvaluationsAnswer,
    answers.FeedbackView,
    answers.InteractionAnswer,
    answers.InteractionItems,
    answers.InteractionView,
    answers.MetricsView,
    answers.ErasureView,
    answers.HealthView,
    answers.ReadyView,
)


def build_document(version: str) -> Json:
    """Return the document; `version` is the distribution's."""
    _, definitions = models_json_schema(
        [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
    )
    bearer = {
        "type": "http",
        "scheme": "bearer",
        "description": "`tdm_...`; `tidemill keys create`",
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Tidemill feedback API", "version": version},
        "paths": (_writing() | _evaluating() | _reading() | _figures() | _erasing() | _process()),
        "components": {"schemas": definitions["$defs"], "securitySchemes": {"key": bearer}},
    }


def _writing() -> Json:
    taken = {202: "stored", 200: "known with the same body"}
    return {
        "/v1/feedback": {
            "post": _operation(
                "Take one feedback",
                Scope.FEEDBACK_WRITE,
                {
                    s: _ok(d, answers.FeedbackAnswer, examples.FEEDBACK_ANSWER)
                    for s, d in taken.items()
                },
                _OF_WRITING,
            )
            | {"requestBody": _body(FeedbackBody, examples.FEEDBACK), "parameters": [_IDEMPOTENCY]}
        },
        "/v1/feedback:batch": {
            "post": _operation(
                "Take many feedbacks",
                Scope.FEEDBACK_WRITE,
                {207: _ok("an answer for each", answers.FeedbackItems, examples.FEEDBACK_ITEMS)},
                _OF_WRITING,
            )
            | {
                "requestBody": _batch("feedback", FeedbackBody, examples.FEEDBACK),
                "parameters": [_IDEMPOTENCY],
            }
        },
        "/v1/interactions": {
            "post": _operation(
                "Take one interaction that the product served itself",
                Scope.INTERACTIONS_WRITE,
                {
                    s: _ok(d, answers.InteractionAnswer, examples.INTERACTION_ANSWER)
                    for s, d in taken.items()
                },
                _OF_WRITING,
            )
            | {"requestBody": _body(InteractionBody, examples.INTERACTION)}
        },
        "/v1/interactions:batch": {
            "post": _operation(
                "Take many interactions",
                Scope.INTERACTIONS_WRITE,
                {
                    207: _ok(
                        "an answer for each", answers.InteractionItems, examples.INTERACTION_ITEMS
                    )
                },
                tuple(status for status in _OF_WRITING if status != 409),
            )
            | {"requestBody": _batch("interactions", InteractionBody, examples.INTERACTION)}
        },
    }


def _evaluating() -> Json:
    # Its form is that of OTLP, where unknown fields are allowed everywhere.
    content = {"schema": {"type": "object"}, "example": examples.EVALUATIONS}
    return {
        "/v1/logs": {
            "post": _operation(
                "Take evaluations from an OpenTelemetry exporter (OTLP over HTTP, JSON)",
                Scope.FEEDBACK_WRITE,
                {
                    200: _ok(
                        "taken, but for those that are counted",
                        answers.EvaluationsAnswer,
                        examples.EVALUATIONS_ANSWER,
                    )
                },
                (413, 415, 422, 429, *_OF_ALL),
            )
            | {"requestBody": {"required": True, "content": {"application/json": content}}}
        }
    }


def _reading() -> Json:
    return {
        "/v1/feedback/{feedback_id}": {
            "get": _operation(
                "Tell where a feedback stands",
                Scope.READ,
                {200: _ok("its state", answers.FeedbackView, examples.FEEDBACK_VIEW)},
                (404, *_OF_ALL),
            )
            | {"parameters": [_path("feedback_id", "order-7:thumb")]}
        },
        "/v1/interactions/{interaction_id}": {
            "get": _operation(
                "Tell where an interaction stands, and its reward",
                Scope.READ,
                {200: _ok("its state", answers.InteractionView, examples.INTERACTION_VIEW)},
                (404, *_OF_ALL),
            )
            | {"parameters": [_path("interaction_id", examples.INTERACTION_ID)]}
        },
        "/v1/metrics-config": {
            "get": _operation(
                "Tell which metrics are declared",
                Scope.READ,
                {200: _ok("as declared", answers.MetricsView, examples.METRICS)},
                _OF_ALL,
            )
        },
    }


def _figures() -> Json:
    text = {"schema": {"type": "string"}, "example": examples.FIGURES}
    good = {"description": "figures for Prometheus", "content": {"text/plain": text}}
    return {
        "/metrics": {
            "get": _operation(
                "Tell the ledger of the key's tenant by state, and what this process answered",
                Scope.READ,
                {200: good},
                _OF_ALL,
            )
        }
    }


def _erasing() -> Json:
    return {
        "/v1/subjects/{subject}": {
            "delete": _operation(
                "Queue the erasure of what is held of an end user",
                Scope.ADMIN,
                {202: _ok("queued, now or before", answers.ErasureView, examples.ERASURE)},
                (422, *_OF_ALL),
            )
            | {"parameters": [_path("subject", "user-17")]}
        },
        "/v1/erasures/{request_id}": {
            "get": _operation(
                "Tell where an erasure stands",
                Scope.ADMIN,
                {200: _ok("its state", answers.ErasureView, examples.ERASURE)},
                (404, *_OF_ALL),
            )
            | {"parameters": [_path("request_id", examples.REQUEST_ID)]}
        },
    }


def _process() -> Json:
    health = _ok("it works", answers.HealthView, {"status": "ok"})
    ready = _ok("feedback can be stored", answers.ReadyView, {"ready": True, "missing": []})
    unready = _ok(
        "it cannot",
        answers.ReadyView,
        {"ready": False, "missing": ["the event log cannot be reached"]},
    )
    return {
        "/health": {
            "get": {"summary": "Tell that the process works", "responses": {"200": health}}
        },
        "/ready": {
            "get": {
                "summary": "Tell whether feedback can be stored",
                "responses": {"200": ready, "503": unready},
            }
        },
    }


def _operation(
    summary: str, scope: Scope, good: Mapping[int, Json], refusals: tuple[int, ...]
) -> Json:
    bad = {status: _refusal(status) for status in refusals}
    return {
        "summary": summary,
        "description": f"Scope `{scope.value}`.",
        "security": [{"key": []}],
        "responses": {str(status): answer for status, answer in sorted({**good, **bad}.items())},
    }


def _ok(description: str, model: type[BaseModel], example: Json) -> Json:
    content = {"schema": _ref(model), "example": example}
    return {"description": description, "content": {"application/json": content}}


def _refusal(status: int) -> Json:
    example = {"type": "about:blank", "status": status} | examples.PROBLEMS[status]
    content = {"schema": _ref(answers.Problem), "example": example}
    answer: Json = {"description": _REFUSALS[status], "content": {MEDIA_TYPE: content}}
    if status in (429, 503):
        schema = {"type": "integer", "minimum": 1}
        answer["headers"] = {"Retry-After": {"schema": schema, "description": "seconds"}}
    return answer


def _body(model: type[BaseModel], example: Json) -> Json:
    content = {"schema": _ref(model), "example": example}
    return {"required": True, "content": {"application/json": content}}


def _batch(field: str, model: type[BaseModel], example: Json) -> Json:
    schema = {
        "type": "object",
        "properties": {field: {"type": "array", "items": _ref(model), "minItems": 1}},
        "required": [field],
        "additionalProperties": False,
    }
    lines = {"type": "string", "description": f"{model.__name__} as JSON, one a line"}
    return {
        "required": True,
        "content": {
            "application/json": {"schema": schema, "example": {field: [example]}},
            NDJSON: {"schema": lines, "example": examples.as_line(example)},
        },
    }


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _path(name: str, example: str) -> Json:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema, "example": example}


_IDEMPOTENCY: Json = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Stands for one feedback_id for good, where the body gives none.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,255}$"},
    "example": "order-7",
}
