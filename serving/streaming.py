"""Pieces of a stream: server-sent events, and which text may go out before a tool call. Pure."""

import json
from typing import Any

DONE = b"data: [DONE]\n\n"

_CALL = "<tool_call"


def json_bytes(body: dict[str, Any]) -> bytes:
    """Return a body as compact UTF-8 JSON."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def event_bytes(body: dict[str, Any]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json_bytes(body) + b"\n\n"


class TextGate:
    """Holds back text that may turn out to be a tool call; without tools everything passes.

    What begins with `{`, or follows `<tool_call`, waits for the end, when the parser has spoken;
    so do trailing blanks, since the parser strips them before a call. Leading blanks never go out.
    """

    def __init__(self, *, has_tools: bool) -> None:
        self._has_tools = has_tools
        self._text = ""
        self.given = ""
        """What went out so far."""

    def push(self, delta: str) -> str:
        """Add text; return what is certain to be text and not part of a call."""
        self._text += delta
        if self._has_tools:
            self._text = self._text.lstrip()
        end = len(self._text) if not self._has_tools else _certain_length(self._text)
        return self._give(self._text[:end])

    def finish(self, content: str) -> str:
        """Return what is left of the content as parsed.

        Raises:
            ValueError: the content does not continue what went out.
        """
        if not content.startswith(self.given):
            raise ValueError("the parsed content does not begin with the text already sent")
        return self._give(content)

    def _give(self, text: str) -> str:
        piece = text[len(self.given) :]
        self.given += piece
        return piece


def _certain_length(text: str) -> int:
    if text.startswith("{"):
        return 0
    at = text.find(_CALL)
    if at < 0:
        at = len(text) - _length_of_begun_call(text)
    return len(text[:at].rstrip())


def _length_of_begun_call(text: str) -> int:
    """Return how many last characters could begin a call."""
    for length in range(min(len(_CALL), len(text)), 0, -1):
        if text.endswith(_CALL[:length]):
            return length
    return 0
