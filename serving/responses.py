"""Response bodies in the shape of the OpenAI API. Pure.

`id` is the interaction id, so that feedback can name it; `model` is the pinned name of the version
that answered, and `system_fingerprint` the version alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from serving.tokens import TokenTable
from tidemill.contracts.events import FinishReason, ToolCall
from tidemill.policy.engine.requests import TokenAlternative


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What every body of one response repeats."""

    interaction_id: str
    model: str
    """With the version, e.g. `tide@v3-0123456789ab`."""
    version: str
    created: int
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One generated token with its log-prob and the alternatives at its place."""

    token_id: int
    logprob: float
    alternatives: tuple[TokenAlternative, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """What a chat completion says."""

    content: str
    tool_calls: tuple[ToolCall, ...]
    """Only those with a name: the rest is left in the text."""
    finish_reason: FinishReason

    @property
    def stated_reason(self) -> str:
        """The reason in the API's words."""
        return "tool_calls" if self.tool_calls else finish_text(self.finish_reason)


def finish_text(reason: FinishReason) -> str:
    """Return the API's word; what did not end by itself was cut."""
    return "stop" if reason is FinishReason.STOP else "length"


def usage(*, num_prompt: int, num_completion: int) -> dict[str, Any]:
    """Return the token counts; the end token counts as generated."""
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
    }


def chat_body(
    label: Label,
    answer: ChatAnswer,
    *,
    logprobs: dict[str, Any] | None,
    counts: dict[str, Any],
) -> dict[str, Any]:
    """Return a whole chat completion."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.content, "refusal": None}
    if answer.tool_calls:
        message["content"] = answer.content or None
        message["tool_calls"] = tool_call_items(label, answer.tool_calls)
    choice = {
        "index": 0,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": answer.stated_reason,
    }
    return {**_head(label, "chat.completion"), "choices": [choice], "usage": counts}


def chat_chunk(
    label: Label,
    delta: dict[str, Any],
    *,
    logprobs: dict[str, Any] | None = None,
    finish_reason: str | None = None,
) -> dict[str, Any]:
    """Return one event of a chat stream."""
    choice = {
        "index": 0,
        "delta": delta,
        "logprobs": logprobs,
        "finish_reason": finish_reason,
    }
    return {**_head(label, "chat.completion.chunk"), "choices": [choice]}


def completion_body(
    label: Label,
    text: str,
    *,
    finish_reason: str | None,
    logprobs: dict[str, Any] | None,
    counts: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a whole text completion, or one event of its stream."""
    choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}
    body = {**_head(label, "text_completion"), "choices": [choice]}
    return body if counts is None else {**body, "usage": counts}


def usage_chunk(label: Label, counts: dict[str, Any], *, kind: str) -> dict[str, Any]:
    """Return the last event of a stream that was asked for its counts."""
    return {**_head(label, kind), "choices": [], "usage": counts}


def tool_call_items(label: Label, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    """Return the calls; each id is unique within the trajectory."""
    unique = label.interaction_id.rsplit("-", 1)[-1]
    return [
        {
            "id": f"call_{unique}_{place}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for place, call in enumerate(calls)
    ]


def model_list(names: Sequence[str], *, created: int) -> dict[str, Any]:
    """Return the answer of `GET /v1/models`."""
    return {"object": "list", "data": [model_item(name, created=created) for name in names]}


def model_item(name: str, *, created: int) -> dict[str, Any]:
    """Return one model."""
    return {"id": name, "object": "model", "created": created, "owned_by": "tidemill"}


def shown_tokens(
    tokens: Sequence[ScoredToken], *, table: TokenTable, text: str | None
) -> tuple[ScoredToken, ...]:
    """Leave out special tokens, and what a stop sequence cut off the text (None = nothing)."""
    visible = [token for token in tokens if token.token_id not in table.special_ids]
    if text is None:
        return tuple(visible)
    shown, room = [], len(text.encode())
    for token in visible:
        if room <= 0:
            break
        room -= len(table.bytes_of(token.token_id))
        shown.append(token)
    return tuple(shown)


def chat_logprobs(tokens: Sequence[ScoredToken], *, table: TokenTable) -> dict[str, Any]:
    """Return the chat shape: one item a token, with its bytes and alternatives."""
    content = [
        {
            **_scored(token.token_id, token.logprob, table),
            "top_logprobs": [_scored(a.token_id, a.logprob, table) for a in token.alternatives],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokens: Sequence[ScoredToken], *, table: TokenTable, offset: int
) -> dict[str, Any]:
    """Return the older shape: parallel lists; offsets count characters from `offset`."""
    texts = [table.text_of(token.token_id) for token in tokens]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": texts,
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [
            {table.text_of(a.token_id): a.logprob for a in token.alternatives} for token in tokens
        ],
        "text_offset": offsets,
    }


def _scored(token_id: int, logprob: float, table: TokenTable) -> dict[str, Any]:
    text = table.text_of(token_id)
    return {"token": text, "logprob": logprob, "bytes": list(table.bytes_of(token_id))}


def _head(label: Label, kind: str) -> dict[str, Any]:
    return {
        "id": label.interaction_id,
        "object": kind,
        "created": label.created,
        "model": label.model,
        "system_fingerprint": label.version,
    }
