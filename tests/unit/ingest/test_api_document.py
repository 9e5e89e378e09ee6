"""The published document tells of every route, and its examples hold."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ingest import api_examples as examples
from ingest.api_document import build_document
from ingest.api_errors import MEDIA_TYPE
from ingest.settings import IngestSettings
from tests.ingest_client import Client

DOCUMENT = build_document("1.2.3")
UNDESCRIBED = {"/openapi.json"}


def contents(part: Any) -> Iterator[dict[str, Any]]:
    """Yield every schema that has an example."""
    if isinstance(part, dict):
        if "schema" in part and "example" in part:
            yield part
        for inner in part.values():
            yield from contents(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from contents(inner)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings())
    yield client
    client.close()


def test_every_route_is_described_and_nothing_else(client: Client) -> None:
    routes = {
        (route.path.replace(":path}", "}"), method.lower())
        for route in client.app.app.routes
        for method in route.methods
    }
    described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}
    assert {one for one in routes if one[0] not in UNDESCRIBED} == described


def test_the_document_is_published(client: Client) -> None:
    found = client.call("GET", "/openapi.json", key="").json()
    assert found["info"].pop("version")
    expected = json.loads(json.dumps(DOCUMENT))
    expected["info"].pop("version")
    assert found == expected


def test_every_example_fits_its_schema() -> None:
    found = list(contents(DOCUMENT["paths"]))
    for content in found:
        schema = content["schema"] | {"components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(content["example"])
    assert len(found) > 60


def test_every_body_and_answer_has_an_example() -> None:
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            answers = list(operation["responses"].values())
            for part in [*answers, *filter(None, [operation.get("requestBody")])]:
                assert all("example" in content for content in part["content"].values()), path


def test_refusals_are_problems_and_say_when_to_come_again() -> None:
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values() if path.startswith("/v1/") else ():
            bad = {one: answer for one, answer in operation["responses"].items() if one >= "400"}
            assert {"401", "403", "503"} <= set(bad)
            assert all(list(answer["content"]) == [MEDIA_TYPE] for answer in bad.values())
            again = {
                one for one, answer in bad.items() if "Retry-After" in answer.get("headers", {})
            }
            assert again == {"429", "503"} & set(bad)


@pytest.mark.parametrize("path", [one for one in DOCUMENT["paths"] if one.startswith("/v1/")])
def test_the_examples_of_bodies_are_accepted(client: Client, path: str) -> None:

    body = DOCUMENT["paths"][path].get("post", {}).get("requestBody", {"content": {}})
    for media_type, content in body["content"].items():
        example = content["example"]
        raw = example.encode() if isinstance(example, str) else json.dumps(example).encode()
        answer = client.post(raw, path, headers={"content-type": media_type})
        assert answer.status_code in (200, 202, 207)
        if path == "/v1/logs":
            assert answer.json() == {}
            continue
        for one in answer.json().get("items", [answer.json()]):
            assert one["status"] in ("accepted", "duplicate")


def test_examples_of_ids_belong_together() -> None:
    assert examples.INTERACTION_ID.startswith(examples.TRAJECTORY_ID)
