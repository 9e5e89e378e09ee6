import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.streaming import DONE, TextGate, event_bytes, json_bytes
from tidemill.policy.tool_calls import parse_tool_calls

CALL = '{"name": "light", "arguments": {}}'
TOOLS = [{"type": "function", "function": {"name": "light", "parameters": {}}}]


def stream(text: str, *, has_tools: bool, piece: int = 1) -> tuple[list[str], TextGate]:
    gate = TextGate(has_tools=has_tools)
    return [gate.push(text[at : at + piece]) for at in range(0, len(text), piece)], gate


def test_events_are_compact_json_lines() -> None:
    assert event_bytes({"a": "ü"}) == 'data: {"a":"ü"}\n\n'.encode()
    assert json.loads(json_bytes({"a": 1})) == {"a": 1}
    assert DONE.endswith(b"\n\n")


def test_without_tools_everything_passes_at_once() -> None:
    assert stream(f" {CALL}", has_tools=False, piece=5)[0][0] == f" {CALL}"[:5]


def test_plain_text_passes_with_tools_too() -> None:
    pieces, gate = stream("Sure, I can", has_tools=True)

    assert "".join(pieces) == "Sure, I can"
    assert gate.finish("Sure, I can") == ""


@pytest.mark.parametrize("text", [CALL, f"  {CALL}", f"<tool_call>{CALL}</tool_call>"])
def test_a_call_is_held_back_whole(text: str) -> None:
    assert "".join(stream(text, has_tools=True)[0]) == ""


def test_text_before_a_call_goes_out_without_its_blanks() -> None:
    pieces, gate = stream(f" Sure. \n<tool_call>{CALL}</tool_call>", has_tools=True)

    assert "".join(pieces) == "Sure."
    assert gate.finish("Sure.") == ""


def test_what_only_looked_like_a_call_comes_at_the_end() -> None:
    pieces, gate = stream("a <tool", has_tools=True)

    assert "".join(pieces) == "a"
    assert gate.finish("a <tool") == " <tool"


def test_content_that_takes_back_what_went_out_is_refused() -> None:
    _, gate = stream("hello", has_tools=True)
    with pytest.raises(ValueError, match="already sent"):
        gate.finish("other")


@given(
    text=st.lists(
        st.sampled_from(["a", " ", "\n", "{", "}", "<tool_call>", "</tool_call>", CALL, "<to"])
    ).map("".join),
    piece=st.integers(1, 7),
)
def test_a_stream_always_ends_with_the_parsed_content(text: str, piece: int) -> None:
    pieces, gate = stream(text, has_tools=True, piece=piece)
    parsed = parse_tool_calls(text, TOOLS)
    is_whole = all(call.name for call in parsed.tool_calls)
    content = (parsed.text_without_calls if is_whole else text).lstrip()

    assert "".join(pieces) + gate.finish(content) == content
