"""Chat completions as the official `openai` client sends and reads them."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from serving.callers import CONTEXT_HEADER, TRAJECTORY_HEADER
from tests.scripted_serving import CHAMPION, LOGPROB, Scripted, scripted_serving
from tidemill.contracts.events import Arm, FinishReason
from tidemill.contracts.ids import new_trajectory_id
from tidemill.policy.base_model import BaseModel
from tidemill.policy.engine.requests import GenerationRequest

CALL = '{"name": "light", "arguments": {"room": "hall"}}'
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "light",
            "description": "switch a light",
            "parameters": {
                "type": "object",
                "properties": {"room": {"type": "string"}},
                "required": ["room"],
            },
        },
    }
]


def say(request: GenerationRequest) -> str:
    """Answer by the seed of the request."""
    return ANSWERS.get(request.sampling.seed or 0, "hello world")


ANSWERS = {
    1: CALL,
    2: f"Sure. <tool_call>{CALL}</tool_call>",
    3: '{"name": "light", "arguments": {"room": 5}}',
    4: '{"name": "light", "argum',
    5: "plain text with { braces }",
    6: f"<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>",
}


@pytest.fixture(scope="module")
def server(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with scripted_serving(base, tmp_path_factory.mktemp("serving"), say) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Scripted) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def ask(client: openai.OpenAI, **over: Any) -> Any:
    values = {"model": "tide", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 200}
    return client.chat.completions.create(**(values | over))


def joined(chunks: Iterator[ChatCompletionChunk]) -> tuple[str, list[dict[str, str]], str | None]:
    """Put a stream together as a client would: text, calls, reason."""
    text, calls, reason = "", [], None
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or []:
                assert call.function is not None
                calls.append(
                    {
                        "id": call.id,
                        "name": call.function.name,
                        "arguments": call.function.arguments,
                    }
                )
            reason = choice.finish_reason or reason
    return text, calls, reason  # type: ignore[return-value]


def test_a_plain_answer_and_its_event(client: openai.OpenAI, server: Scripted) -> None:
    answer = ask(client)

    assert answer.choices[0].message.content == "hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == f"tide@{CHAMPION}"
    assert answer.usage.completion_tokens == 11
    event = server.events()[-1]
    assert event.interaction_id == answer.id
    assert event.content.completion == "hello world"
    assert event.content.messages == ({"role": "user", "content": "hi"},)
    assert event.finish_reason is FinishReason.STOP
    assert event.arm is Arm.CHAMPION
    assert event.consent_train is False
    assert event.behaviour_logprobs == (LOGPROB,) * 11


@pytest.mark.parametrize(
    ("seed", "content", "num_calls"),
    [(1, None, 1), (2, "Sure.", 1), (6, None, 2)],
)
def test_tool_calls_whole_and_streamed(
    client: openai.OpenAI, seed: int, content: str | None, num_calls: int
) -> None:
    whole = ask(client, tools=TOOLS, seed=seed).choices[0]
    text, calls, reason = joined(ask(client, tools=TOOLS, seed=seed, stream=True))

    assert whole.finish_reason == reason == "tool_calls"
    assert whole.message.content == content
    assert text == (content or "")
    assert len(whole.message.tool_calls) == len(calls) == num_calls
    assert whole.message.tool_calls[0].function.name == calls[0]["name"] == "light"
    assert whole.message.tool_calls[0].function.arguments == calls[0]["arguments"]
    assert len({call.id for call in whole.message.tool_calls}) == num_calls


def test_a_call_that_breaks_its_schema_is_told_and_recorded_as_invalid(
    client: openai.OpenAI, server: Scripted
) -> None:
    answer = ask(client, tools=TOOLS, seed=3).choices[0]

    assert answer.message.tool_calls[0].function.arguments == '{"room": 5}'
    event = server.events()[-1]
    assert event.is_malformed
    assert event.tool_calls[0].name == "light"


def test_half_a_call_is_text_for_the_caller_and_malformed_in_the_event(
    client: openai.OpenAI, server: Scripted
) -> None:
    whole = ask(client, tools=TOOLS, seed=4).choices[0]
    text, calls, reason = joined(ask(client, tools=TOOLS, seed=4, stream=True))

    assert whole.message.content == text == ANSWERS[4]
    assert not whole.message.tool_calls
    assert not calls
    assert whole.finish_reason == reason == "stop"
    assert server.events()[-1].is_malformed


def test_tool_choice_none_offers_no_tool(client: openai.OpenAI, server: Scripted) -> None:
    answer = ask(client, tools=TOOLS, tool_choice="none", seed=1).choices[0]

    assert answer.message.content == CALL
    assert not server.events()[-1].is_malformed
    assert server.events()[-1].content.tools == ()


def test_a_demanded_call_that_does_not_come_is_malformed(
    client: openai.OpenAI, server: Scripted
) -> None:
    answer = ask(client, tools=TOOLS, tool_choice="required", seed=5).choices[0]

    assert answer.message.content == ANSWERS[5]
    assert server.events()[-1].is_malformed


def test_a_stream_carries_text_usage_and_headers(client: openai.OpenAI, server: Scripted) -> None:
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}, max_tokens=5))

    assert joined(iter(chunks)) == ("hello", [], "length")
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens == 5
    assert {chunk.id for chunk in chunks} == {server.events()[-1].interaction_id}
    assert len([c for c in chunks if c.choices and c.choices[0].delta.content]) > 1


@pytest.mark.parametrize("is_streamed", [False, True])
def test_log_probs(client: openai.OpenAI, is_streamed: bool) -> None:
    answer = ask(client, logprobs=True, top_logprobs=2, max_tokens=3, stream=is_streamed)
    tokens = (
        [t for chunk in answer for c in chunk.choices if c.logprobs for t in c.logprobs.content]
        if is_streamed
        else answer.choices[0].logprobs.content
    )

    assert [token.token for token in tokens] == ["h", "e", "l"]
    assert tokens[0].logprob == LOGPROB
    assert tokens[0].bytes == [104]
    assert len(tokens[0].top_logprobs) == 2


def test_headers_name_trajectory_subject_consent_and_context(
    client: openai.OpenAI, server: Scripted
) -> None:
    trajectory_id = new_trajectory_id()
    headers = {
        TRAJECTORY_HEADER: trajectory_id,
        "x-tidemill-subject": "ada@example.org",
        "x-tidemill-consent": "yes",
        CONTEXT_HEADER: "lights",
    }
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": [{"type": "text", "text": "again"}]},
    ]
    ask(client, messages=messages, extra_headers=headers)

    event = server.events()[-1]
    assert event.trajectory_id == trajectory_id
    assert event.turn == 1
    assert event.consent_train is True
    assert event.context == "lights"
    assert event.subject == server.service.hasher.subject("default", "ada@example.org")
    assert "ada" not in event.model_dump_json()


def test_the_body_s_user_is_the_subject_too(client: openai.OpenAI, server: Scripted) -> None:
    ask(client, user="ada@example.org")

    subject = server.service.hasher.subject("default", "ada@example.org")
    assert server.events()[-1].subject == subject


def test_greedy_is_recorded_as_top_k_one(client: openai.OpenAI, server: Scripted) -> None:
    ask(client, temperature=0)

    assert server.events()[-1].sampling.top_k == 1
    assert server.events()[-1].sampling.temperature == 1.0


def test_a_pinned_version_is_no_evidence(client: openai.OpenAI, server: Scripted) -> None:
    ask(client, model=f"tide@{CHAMPION}")

    assert server.events()[-1].arm is Arm.PINNED
    assert server.events()[-1].assignment_probability == 1.0


def test_models_are_the_name_and_each_version(client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["tide", f"tide@{CHAMPION}"]
    assert client.models.retrieve("tide").id == "tide"
    with pytest.raises(openai.NotFoundError, match="does not exist here"):
        client.models.retrieve("gpt-5")
