"""Tool calls in a completion's text, and whether they obey their declared schemas.

Pure and free of torch: ingest and environments read completions with it too. Two forms are known:
`<tool_call>{...}</tool_call>` (Hermes), and a bare JSON object with "name" and "arguments".
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from tidemill.contracts.events import ToolCall

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)
_MAX_CHARS = 65_536
"""A longer call is not parsed: no model has a good reason for one."""
_NO_FETCHING: Registry[Any] = Registry()
"""jsonschema's own would fetch a `$ref` over the network."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A completion taken apart."""

    text_without_calls: str
    tool_calls: tuple[ToolCall, ...]


def parse_tool_calls(text: str, tools: Sequence[Mapping[str, Any]]) -> ParsedCompletion:
    """Find the tool calls of a completion and judge each against the declared tools.

    `tools` as in the OpenAI API: {"type": "function", "function": {"name", "parameters"}}. Text
    that begins like a call but does not parse is one invalid call; without declared tools a bare
    JSON object is text.
    """
    schemas = _declared(tools)
    tagged = _TAGGED.findall(text)
    if tagged:
        calls = tuple(_judge(body.strip(), schemas) for body in tagged)
        return ParsedCompletion(_TAGGED.sub("", text).strip(), calls)
    stripped = text.strip()
    begins_like_call = stripped.startswith("<tool_call") or (
        bool(schemas) and stripped.startswith("{")
    )
    if begins_like_call:
        return ParsedCompletion("", (_judge(stripped, schemas),))
    return ParsedCompletion(text, ())


def _declared(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    functions = [tool.get("function", tool) for tool in tools]
    return {str(f.get("name", "")): f.get("parameters") or {} for f in functions}


def _judge(body: str, schemas: Mapping[str, Any]) -> ToolCall:
    if len(body) > _MAX_CHARS:
        return _invalid("", body, f"longer than {_MAX_CHARS} characters")
    try:
        call = json.loads(body, parse_constant=_refuse)
        json.dumps(call, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        return _invalid("", body, f"not JSON: {error}"[:200])
    if not isinstance(call, dict) or not isinstance(call.get("name"), str):
        return _invalid("", body, "no JSON object with a name")
    name, arguments = call["name"], call.get("arguments")
    text = json.dumps(arguments, ensure_ascii=False)
    reason = _why_invalid(call, schemas)
    return ToolCall(name=name, arguments=text, valid=reason is None, reason=reason)


def _why_invalid(call: Mapping[str, Any], schemas: Mapping[str, Any]) -> str | None:
    name, arguments = call["name"], call.get("arguments")
    if call.keys() != {"name", "arguments"}:
        return f"a call has name and arguments, this one {sorted(call)}"[:200]
    if not isinstance(arguments, dict):
        return f"arguments are a JSON object, not {type(arguments).__name__}"
    if name not in schemas:
        return f"unknown tool {name!r:.80}"
    try:
        _validator(json.dumps(schemas[name], sort_keys=True)).validate(arguments)
    except (Unresolvable, RecursionError) as error:
        return f"the schema of {name} is wrong: {error}"[:200]
    except SchemaError as error:
        return f"the schema of {name} is wrong: {error.message}"[:200]
    except ValidationError as error:
        return f"{error.json_path}: {error.message}"[:200]
    return None


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    """Return the validator of a schema's JSON; building one costs far more than using it."""
    declared = json.loads(schema)
    kind = validator_for(declared)
    kind.check_schema(declared)
    return kind(declared, registry=_NO_FETCHING)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _invalid(name: str, body: str, reason: str) -> ToolCall:
    return ToolCall(name=name, arguments=body, valid=False, reason=reason)
