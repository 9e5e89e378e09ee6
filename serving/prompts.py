"""From request bodies to what the model is shown and how its answer is sampled. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from serving.errors import ApiError, context_length_exceeded
from serving.interactions import Prompt
from serving.schemas import ChatBody, CompletionBody, GenerationBody
from tidemill.contracts.events import MIN_TEMPERATURE, Sampling
from tidemill.errors import ConfigurationError, ContractError

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], Sequence[int]]
"""Messages and tools to token ids."""
Encode = Callable[[str], Sequence[int]]
"""Text to token ids."""
Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

GREEDY_TEMPERATURE = 1.0
"""Greedy asks for the most probable token; log-probs need a real temperature."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds when a request does not say."""

    max_tokens: int
    temperature: float


def chat_prompt(body: ChatBody, *, render: Render) -> Prompt:
    """Return the prompt of a chat.

    Raises:
        ApiError: the template refuses the messages, or there is none.
    """
    messages = tuple(message.plain() for message in body.messages)
    tools = body.offered_tools()
    try:
        prompt_ids = render(messages, tools)
    except ContractError as error:
        raise ApiError(400, str(error), code="invalid_value", param="messages") from error
    except ConfigurationError as error:
        raise ApiError(400, f"{error}; use /v1/completions", code="no_chat_template") from error
    return Prompt(
        messages=messages, tools=tools, must_call=body.must_call, prompt_ids=tuple(prompt_ids)
    )


def text_prompt(body: CompletionBody, *, encode: Encode, decode: Decode, num_tokens: int) -> Prompt:
    """Return the prompt of a text completion: a text, or token ids below `num_tokens`.

    Raises:
        ApiError: a token id that the vocabulary lacks.
    """
    if isinstance(body.prompt, str):
        return _as_user(body.prompt, encode(body.prompt))
    unknown = [i for i in body.prompt if not 0 <= i < num_tokens]
    if unknown:
        raise ApiError(
            400,
            f"token id {unknown[0]!s:.40} is not in the vocabulary of {num_tokens}",
            code="invalid_value",
            param="prompt",
        )
    return _as_user(decode(body.prompt), body.prompt)


def sampling_of(
    body: GenerationBody,
    *,
    token_limit: int | None,
    num_prompt: int,
    max_context: int,
    defaults: Defaults,
) -> Sampling:
    """Return how to sample; without a limit the answer may fill the context up to the default.

    A temperature below `MIN_TEMPERATURE` is greedy.

    Raises:
        ApiError: prompt and completion do not fit into the context.
    """
    room = max_context - num_prompt
    max_tokens = token_limit or max(1, min(defaults.max_tokens, room))
    if max_tokens > room:
        raise context_length_exceeded(
            num_prompt=num_prompt, num_completion=max_tokens, limit=max_context
        )
    temperature = body.temperature
    if temperature is None:
        temperature = defaults.temperature
    is_greedy = temperature < MIN_TEMPERATURE
    return Sampling(
        temperature=GREEDY_TEMPERATURE if is_greedy else temperature,
        top_p=1.0 if is_greedy or body.top_p is None else body.top_p,
        top_k=1 if is_greedy else body.top_k or 0,
        seed=body.seed,
        max_tokens=max_tokens,
    )


def _as_user(text: str, prompt_ids: Sequence[int]) -> Prompt:
    message = {"role": "user", "content": text}
    return Prompt(messages=(message,), prompt_ids=tuple(prompt_ids))
