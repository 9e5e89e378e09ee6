"""What schemathesis makes of the OpenAPI document: no 5xx, and no answer that it does not name."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from ingest.api_document import build_document
from ingest.settings import IngestSettings
from tests.ingest_client import Client

CHECKS: list[CheckFunction] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
SETTINGS = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(tmp_path_factory.mktemp("api"), IngestSettings())
    yield client
    client.close()


@pytest.fixture(scope="module")
def published(client: Client) -> OpenApiSchema:
    return schemathesis.openapi.from_asgi("/openapi.json", client.app)


WITHOUT_INPUT = ("/health", "/ready")
CALLS = [
    (path, method, mode)
    for path, item in build_document("0")["paths"].items()
    for method in item
    for mode in GenerationMode
    if mode.is_positive or path not in WITHOUT_INPUT
]


@pytest.mark.parametrize(("path", "method", "mode"), CALLS)
def test_each_answer_is_documented(
    published: OpenApiSchema, client: Client, path: str, method: str, mode: GenerationMode
) -> None:
    # Called here, not collected: the pytest plugin of schemathesis knows only older pytests.
    @SETTINGS
    @given(case=published[path][method].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=with_key(client), checks=CHECKS)

    check()


def test_answers_stay_documented_from_one_request_to_the_next(
    published: OpenApiSchema, client: Client
) -> None:
    class Calls(published.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, _: Any) -> dict[str, Any]:
            return {"headers": with_key(client)}

        def validate_response(self, response: Any, case: schemathesis.Case, **_: Any) -> None:
            case.validate_response(response, checks=CHECKS)

    Calls.run(settings=settings(SETTINGS, max_examples=10, stateful_step_count=6))


def with_key(client: Client) -> dict[str, str]:
    return {"authorization": f"Bearer {client.keys['admin']}"}
