"""The two calls' answers, whole or as a stream, from a running request.

What comes after the last token (the final chunk, the whole body) is given only once the interaction
is durable.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from serving.responses import (
    ScoredToken,
    chat_body,
    chat_chunk,
    chat_logprobs,
    completion_body,
    completion_logprobs,
    finish_text,
    shown_tokens,
    tool_call_items,
    usage,
    usage_chunk,
)
from serving.schemas import ChatBody, CompletionBody
from serving.service import Running
from serving.streaming import TextGate
from serving.tokens import TokenTable
from tidemill.policy.engine.requests import Generation, TokenChunk

Body = dict[str, Any]


async def chat_whole(running: Running, body: ChatBody, table: TokenTable) -> Body:
    """Return the body of a chat completion."""
    served = await running.record(await running.whole())
    logprobs = None
    if body.num_top_logprobs is not None:
        logprobs = chat_logprobs(_tokens_shown(served.generation, body.stops, table), table=table)
    return chat_body(
        running.label, served.answer, logprobs=logprobs, counts=_counts(served.generation)
    )


async def completion_whole(running: Running, body: CompletionBody, table: TokenTable) -> Body:
    """Return the body of a text completion."""
    generation = (await running.record(await running.whole())).generation
    logprobs = None
    if body.num_top_logprobs is not None:
        tokens = _tokens_shown(generation, body.stops, table)
        logprobs = completion_logprobs(tokens, table=table, offset=0)
    return completion_body(
        running.label,
        generation.text,
        finish_reason=finish_text(generation.finish_reason),
        logprobs=logprobs,
        counts=_counts(generation),
    )


async def chat_events(running: Running, body: ChatBody, table: TokenTable) -> AsyncIterator[Body]:
    """Yield the chunks of a chat completion."""
    label, gate = running.label, TextGate(has_tools=bool(body.offered_tools()))
    answer = await running.next()
    yield chat_chunk(label, {"role": "assistant", "content": ""})
    while isinstance(answer, TokenChunk):
        text, logprobs = gate.push(answer.text_delta), None
        if body.num_top_logprobs is not None:
            tokens = shown_tokens(_scored(answer), table=table, text=None)
            logprobs = chat_logprobs(tokens, table=table) if tokens else None
        if text or logprobs:
            yield chat_chunk(label, {"content": text}, logprobs=logprobs)
        answer = await running.next()
    served = await running.record(answer)
    rest = gate.finish(served.answer.content)
    if rest:
        yield chat_chunk(label, {"content": rest})
    for place, item in enumerate(tool_call_items(label, served.answer.tool_calls)):
        yield chat_chunk(label, {"tool_calls": [{"index": place, **item}]})
    yield chat_chunk(label, {}, finish_reason=served.answer.stated_reason)
    if body.include_usage:
        yield usage_chunk(label, _counts(answer), kind="chat.completion.chunk")


async def completion_events(
    running: Running, body: CompletionBody, table: TokenTable
) -> AsyncIterator[Body]:
    """Yield the chunks of a text completion."""
    label, offset = running.label, 0
    answer = await running.next()
    while isinstance(answer, TokenChunk):
        logprobs = None
        if body.num_top_logprobs is not None:
            tokens = shown_tokens(_scored(answer), table=table, text=None)
            if tokens:
                logprobs = completion_logprobs(tokens, table=table, offset=offset)
                offset += sum(map(len, logprobs["tokens"]))
        if answer.text_delta or logprobs:
            yield completion_body(label, answer.text_delta, finish_reason=None, logprobs=logprobs)
        answer = await running.next()
    await running.record(answer)
    reason = finish_text(answer.finish_reason)
    yield completion_body(label, "", finish_reason=reason, logprobs=None)
    if body.include_usage:
        yield usage_chunk(label, _counts(answer), kind="text_completion")


def _tokens_shown(
    generation: Generation, stops: Sequence[str], table: TokenTable
) -> tuple[ScoredToken, ...]:
    text = generation.text if stops else None
    return shown_tokens(_scored(generation), table=table, text=text)


def _scored(answer: TokenChunk | Generation) -> list[ScoredToken]:
    ids = answer.token_ids if isinstance(answer, TokenChunk) else answer.completion_ids
    alternatives = answer.top_logprobs or ((),) * len(ids)
    return [ScoredToken(*token) for token in zip(ids, answer.logprobs, alternatives, strict=True)]


def _counts(generation: Generation) -> Body:
    return usage(
        num_prompt=len(generation.prompt_ids), num_completion=len(generation.completion_ids)
    )
