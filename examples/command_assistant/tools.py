"""The declared tools, as the OpenAI API has them, and the canonical text of a call."""

import json
from collections.abc import Mapping
from typing import Any

from examples.command_assistant.kinds import KINDS, Kind, Way, slots_of_tool


def _property(values: tuple[Any, ...]) -> dict[str, Any]:
    kind = "integer" if isinstance(values[0], int) else "string"
    return {"type": kind, "enum": list(values)}


def _declare(name: str) -> dict[str, Any]:
    properties = {key: _property(values) for key, values in slots_of_tool(name).items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": properties,
                "required": list(properties),
                "additionalProperties": False,
            },
        },
    }


TOOL_NAMES: tuple[str, ...] = tuple(dict.fromkeys(way.tool for kind in KINDS for way in kind.ways))
TOOLS: Mapping[str, Mapping[str, Any]] = {name: _declare(name) for name in TOOL_NAMES}


def offered_tools(kind: Kind, other: str) -> tuple[Mapping[str, Any], ...]:
    """Return the declarations that a request carries: the kind's own tools and one other.

    In the order of `TOOL_NAMES`, so that the order says nothing about the answer.
    """
    offered = {way.tool for way in kind.ways} | {other}
    return tuple(TOOLS[name] for name in TOOL_NAMES if name in offered)


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the canonical JSON of a call: no spaces."""
    return json.dumps({"name": name, "arguments": dict(arguments)}, separators=(",", ":"))


def answer_text(kind: Kind, slots: Mapping[str, Any], way: Way) -> str:
    """Return the canonical answer to a request of a kind, given one of its ways."""
    arguments = {name: slots[name] for name in kind.slots} | dict(way.extra)
    return call_text(way.tool, arguments)
