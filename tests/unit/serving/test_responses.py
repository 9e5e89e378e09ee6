from serving.responses import (
    ChatAnswer,
    Label,
    ScoredToken,
    chat_body,
    chat_chunk,
    chat_logprobs,
    completion_body,
    completion_logprobs,
    model_list,
    shown_tokens,
    tool_call_items,
    usage,
    usage_chunk,
)
from serving.tokens import TokenTable
from tidemill.contracts.events import FinishReason, ToolCall
from tidemill.policy.engine.requests import TokenAlternative

LABEL = Label(
    interaction_id="01a2-aa.01a2-bb", model="tide@v1-a", version="v1-a", created=1_700_000_000
)
TABLE = TokenTable((b"<end>", b"on", b" off", b"\xc3"), frozenset({0}))
COUNTS = usage(num_prompt=3, num_completion=2)
CALL = ToolCall(name="light", arguments="{}", valid=True)


def answer(
    *calls: ToolCall, content: str = "hi", reason: FinishReason = FinishReason.STOP
) -> ChatAnswer:
    return ChatAnswer(content=content, tool_calls=calls, finish_reason=reason)


def test_a_chat_body() -> None:
    body = chat_body(LABEL, answer(), logprobs=None, counts=COUNTS)

    assert body["id"] == LABEL.interaction_id
    assert body["system_fingerprint"] == "v1-a"
    assert body["choices"][0]["message"]["content"] == "hi"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_chat_body_with_calls_has_no_empty_text() -> None:
    body = chat_body(LABEL, answer(CALL, content=""), logprobs=None, counts=COUNTS)

    message = body["choices"][0]["message"]
    assert message["content"] is None
    assert message["tool_calls"] == tool_call_items(LABEL, [CALL])
    assert message["tool_calls"][0]["id"] == "call_bb_0"
    assert body["choices"][0]["finish_reason"] == "tool_calls"


def test_what_was_cut_says_so() -> None:
    assert answer(reason=FinishReason.LENGTH).stated_reason == "length"
    assert answer(reason=FinishReason.ABORTED).stated_reason == "length"


def test_chunks() -> None:
    chunk = chat_chunk(LABEL, {"content": "h"}, finish_reason="stop")
    assert chunk["object"] == "chat.completion.chunk"
    assert chunk["choices"][0]["delta"] == {"content": "h"}
    assert usage_chunk(LABEL, COUNTS, kind="text_completion")["choices"] == []


def test_text_bodies() -> None:
    piece = completion_body(LABEL, "h", finish_reason=None, logprobs=None)
    whole = completion_body(LABEL, "h", finish_reason="stop", logprobs=None, counts=COUNTS)

    assert "usage" not in piece
    assert whole["usage"] == COUNTS
    assert whole["object"] == "text_completion"


def test_models() -> None:
    listed = model_list(["tide", "tide@v1-a"], created=5)
    assert [item["id"] for item in listed["data"]] == ["tide", "tide@v1-a"]


TOKENS = (
    ScoredToken(1, -0.5, (TokenAlternative(token_id=2, logprob=-0.7),)),
    ScoredToken(2, -0.25),
    ScoredToken(0, -0.1),
)


def test_special_tokens_and_what_a_stop_cut_off_are_not_shown() -> None:
    assert shown_tokens(TOKENS, table=TABLE, text=None) == TOKENS[:2]
    assert shown_tokens(TOKENS, table=TABLE, text="on") == TOKENS[:1]
    assert shown_tokens(TOKENS, table=TABLE, text="") == ()


def test_log_probs_in_both_shapes() -> None:
    [first, second] = chat_logprobs(TOKENS[:2], table=TABLE)["content"]
    assert first["token"] == "on"  # noqa: S105
    assert first["bytes"] == [111, 110]
    assert first["top_logprobs"] == [{"token": " off", "logprob": -0.7, "bytes": list(b" off")}]
    assert second["top_logprobs"] == []

    older = completion_logprobs(TOKENS[:2], table=TABLE, offset=4)
    assert older == {
        "tokens": ["on", " off"],
        "token_logprobs": [-0.5, -0.25],
        "top_logprobs": [{" off": -0.7}, {}],
        "text_offset": [4, 6],
    }
