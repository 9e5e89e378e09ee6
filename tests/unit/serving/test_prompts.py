from collections.abc import Sequence
from typing import Any

import pytest

from serving.errors import ApiError
from serving.prompts import Defaults, chat_prompt, sampling_of, text_prompt
from serving.schemas import ChatBody, CompletionBody
from tidemill.contracts.events import MIN_TEMPERATURE, Sampling
from tidemill.errors import ConfigurationError, ContractError

CHAT: dict[str, Any] = {"model": "tide", "messages": [{"role": "user", "content": "hi"}]}


def sampling(
    *, limit: int | None = None, num_prompt: int = 10, default: float = 0.9, **over: Any
) -> Sampling:
    return sampling_of(
        ChatBody.model_validate(CHAT | over),
        token_limit=limit,
        num_prompt=num_prompt,
        max_context=100,
        defaults=Defaults(max_tokens=50, temperature=default),
    )


def test_a_chat_is_rendered_with_its_tools() -> None:
    tool = {"type": "function", "function": {"name": "light", "parameters": {}}}
    body = ChatBody.model_validate(CHAT | {"tools": [tool], "tool_choice": "required"})
    prompt = chat_prompt(body, render=lambda messages, tools: [len(messages), len(tools)])

    assert prompt.prompt_ids == (1, 1)
    assert prompt.must_call
    assert prompt.messages == ({"role": "user", "content": "hi"},)


@pytest.mark.parametrize(
    ("error", "code"),
    [(ContractError("no"), "invalid_value"), (ConfigurationError("no"), "no_chat_template")],
)
def test_a_template_that_refuses_is_the_caller_s_error(error: Exception, code: str) -> None:
    def render(*_: Any) -> Sequence[int]:
        raise error

    with pytest.raises(ApiError) as caught:
        chat_prompt(ChatBody.model_validate(CHAT), render=render)
    assert (caught.value.status, caught.value.code) == (400, code)


@pytest.mark.parametrize("prompt", ["ab", [97, 98]])
def test_texts_and_ids_give_the_same_prompt(prompt: Any) -> None:
    body = CompletionBody.model_validate({"model": "tide", "prompt": prompt})
    made = text_prompt(
        body,
        encode=lambda text: list(text.encode()),
        decode=lambda ids: bytes(ids).decode(),
        num_tokens=256,
    )

    assert made.prompt_ids == (97, 98)
    assert made.messages == ({"role": "user", "content": "ab"},)


@pytest.mark.parametrize("token_id", [-1, 256])
def test_an_id_outside_the_vocabulary_is_refused(token_id: int) -> None:
    body = CompletionBody.model_validate({"model": "tide", "prompt": [token_id]})
    with pytest.raises(ApiError, match="vocabulary of 256"):
        text_prompt(body, encode=lambda _: [], decode=lambda _: "", num_tokens=256)


def test_defaults() -> None:
    assert sampling() == Sampling(temperature=0.9, max_tokens=50)
    assert sampling(num_prompt=80).max_tokens == 20


def test_what_the_request_says() -> None:
    assert sampling(limit=7, temperature=0.5, top_p=0.9, top_k=3, seed=4) == Sampling(
        temperature=0.5, top_p=0.9, top_k=3, seed=4, max_tokens=7
    )


@pytest.mark.parametrize("temperature", [0, 1e-300, 1e-4, 0.0499])
def test_a_temperature_near_zero_is_greedy_at_temperature_one(temperature: float) -> None:
    greedy = Sampling(temperature=1.0, top_k=1, max_tokens=50)

    assert sampling(temperature=temperature, top_p=0.5, top_k=7) == greedy
    assert sampling(default=temperature) == greedy


def test_the_least_temperature_that_samples() -> None:
    assert sampling(temperature=MIN_TEMPERATURE).temperature == MIN_TEMPERATURE == 0.05


@pytest.mark.parametrize(("limit", "num_prompt"), [(91, 10), (None, 100), (None, 150)])
def test_what_does_not_fit_the_context_is_refused(limit: int | None, num_prompt: int) -> None:
    with pytest.raises(ApiError) as caught:
        sampling(limit=limit, num_prompt=num_prompt)
    assert caught.value.code == "context_length_exceeded"
