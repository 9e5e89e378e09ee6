"""Tool calls in text, judged by their declared schemas."""

import json
from typing import Any

import pytest

from tidemill.policy.tool_calls import parse_tool_calls

LIGHT = {
    "type": "function",
    "function": {
        "name": "light",
        "parameters": {
            "type": "object",
            "properties": {"room": {"enum": ["hall", "attic"]}, "level": {"type": "integer"}},
            "required": ["room"],
            "additionalProperties": False,
        },
    },
}
GOOD = '{"name":"light","arguments":{"room":"hall","level":3}}'


def call(**arguments: Any) -> str:
    return json.dumps({"name": "light", "arguments": arguments})


def test_a_bare_call_is_read() -> None:
    parsed = parse_tool_calls(f" {GOOD}\n", [LIGHT])
    assert parsed.text_without_calls == ""
    (found,) = parsed.tool_calls
    assert (found.name, found.valid, found.reason) == ("light", True, None)
    assert json.loads(found.arguments) == {"room": "hall", "level": 3}


def test_tagged_calls_leave_their_text() -> None:
    text = f"Sure. <tool_call>{GOOD}</tool_call> and <tool_call>{call(room='moon')}"
    parsed = parse_tool_calls(text, [LIGHT])
    assert parsed.text_without_calls == "Sure.  and"
    assert [found.valid for found in parsed.tool_calls] == [True, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (call(), "'room' is a required property"),
        (call(room="moon"), "'moon' is not one of"),
        (call(room="hall", level="3"), "is not of type 'integer'"),
        (call(room="hall", colour=1), "Additional properties"),
        ('{"name":"bomb","arguments":{}}', "unknown tool 'bomb'"),
        ('{"name":"light"}', "a call has name and arguments"),
        ('{"name":"light","arguments":{},"id":1}', "a call has name and arguments"),
        ('{"name":"light","arguments":[1]}', "not list"),
        ('{"name":7,"arguments":{}}', "no JSON object with a name"),
        ('{"name":"light","arguments":{"room":"hall"', "not JSON"),
        ("<tool_call", "not JSON"),
        ("<tool_call>[]</tool_call>", "no JSON object with a name"),
        ("{" + "1" * 70_000, "longer than"),
        ('{"name":"light","arguments":{"level":NaN}}', "NaN is no JSON"),
        ('{"name":"light","arguments":{"room":"\\ud800"}}', "not JSON"),
        ("<tool_call>" + "[" * 60_000, "not JSON"),
    ],
)
def test_a_broken_call_is_invalid_with_a_reason(text: str, reason: str) -> None:
    (found,) = parse_tool_calls(text, [LIGHT]).tool_calls
    assert not found.valid
    assert reason in (found.reason or "")
    assert len(found.reason or "") <= 200


def test_text_is_text() -> None:
    for text, tools in (("It is done.", [LIGHT]), ('{"a":1}', []), ("", [LIGHT])):
        parsed = parse_tool_calls(text, tools)
        assert (parsed.text_without_calls, parsed.tool_calls) == (text, ())


def test_a_wrong_schema_is_the_products_fault_and_said_so() -> None:
    tool = {"name": "light", "parameters": {"type": "no such type"}}
    (found,) = parse_tool_calls(GOOD, [tool]).tool_calls
    assert "the schema of light is wrong" in (found.reason or "")


def test_a_tool_without_parameters_takes_any() -> None:
    (found,) = parse_tool_calls(GOOD, [{"name": "light"}]).tool_calls
    assert found.valid


def test_a_schema_that_points_elsewhere_is_never_fetched() -> None:
    tool = {"name": "light", "parameters": {"$ref": "http://127.0.0.1:9/schema.json"}}
    (found,) = parse_tool_calls(GOOD, [tool]).tool_calls
    assert "the schema of light is wrong" in (found.reason or "")


def test_a_schema_that_contains_itself_ends() -> None:
    tool = {"name": "light", "parameters": {"$ref": "#"}}
    (found,) = parse_tool_calls(GOOD, [tool]).tool_calls
    assert "the schema of light is wrong" in (found.reason or "")
