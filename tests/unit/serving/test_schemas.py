from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError

from serving.errors import invalid_request
from serving.schemas import MAX_COUNT, MIN_TOP_P, ChatBody, CompletionBody, GenerationBody

TOOL = {"type": "function", "function": {"name": "light", "parameters": {"type": "object"}}}


def chat(**over: Any) -> ChatBody:
    values = {"model": "tide", "messages": [{"role": "user", "content": "hi"}]}
    return ChatBody.model_validate(values | over)


def refusal(**over: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        chat(**over)
    return invalid_request(caught.value.errors()[0]).message  # type: ignore[arg-type]


def test_messages_become_plain() -> None:
    body = chat(
        messages=[
            {"role": "developer", "content": "be brief"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "name": "ada",
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "1",
                        "type": "function",
                        "function": {"name": "light", "arguments": "{}"},
                    }
                ],
            },
            {"role": "tool", "content": "done", "tool_call_id": "1"},
        ]
    )

    assert [message.plain() for message in body.messages] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "ab", "name": "ada"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "light", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "content": "done", "tool_call_id": "1"},
    ]


@pytest.mark.parametrize(
    ("choice", "num_offered", "must_call"),
    [
        (None, 2, False),
        ("auto", 2, False),
        ("none", 0, False),
        ("required", 2, True),
        ({"type": "function", "function": {"name": "light"}}, 1, True),
    ],
)
def test_tool_choice(choice: Any, num_offered: int, must_call: bool) -> None:
    other = {"type": "function", "function": {"name": "heat"}}
    body = chat(tools=[TOOL, other], tool_choice=choice)

    assert len(body.offered_tools()) == num_offered
    assert body.must_call is must_call


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"tool_choice": "required"}, "needs tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "no declared tool"),
        ({"top_logprobs": 1}, "needs logprobs"),
        ({"stream_options": {"include_usage": True}}, "needs stream"),
        ({"stop": [""]}, "stop sequences"),
        ({"n": 3}, "only as 1"),
        ({"logit_bias": {"5": 1}}, "only as {}"),
        ({"user": "\ud800"}, "surrogate"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "Input should be"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "pattern"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "a", "parameters": {"x": float("nan")}},
                    }
                ]
            },
            "NaN",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(over: dict[str, Any], words: str) -> None:
    assert words in refusal(**over)


NUMBERS = [
    (body, name)
    for body in (ChatBody, CompletionBody)
    for name, field in body.model_fields.items()
    if {int, float} & {field.annotation, *get_args(field.annotation)}
]


@pytest.mark.parametrize("value", [2**63, 10**30, -(2**64), 1e300, -1e300])
@pytest.mark.parametrize(("body", "name"), NUMBERS)
def test_no_number_reaches_the_engine_that_it_cannot_hold(
    body: type[GenerationBody], name: str, value: float
) -> None:
    chat_or_text = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    fields = {key: chat_or_text[key] for key in chat_or_text.keys() & body.model_fields.keys()}
    with pytest.raises(ValidationError) as caught:
        body.model_validate({"model": "tide", "logprobs": 1, **fields, name: value})
    assert [error["loc"] for error in caught.value.errors()] == [(name,)]
    assert invalid_request(caught.value.errors()[0]).status == 400  # type: ignore[arg-type]


def test_every_number_is_covered() -> None:
    assert {name for _, name in NUMBERS} == {
        *("temperature", "top_p", "top_k", "seed", "max_tokens", "max_completion_tokens"),
        *("logprobs", "top_logprobs", "n", "best_of", "presence_penalty", "frequency_penalty"),
    }


def test_the_greatest_and_smallest_numbers_fit_a_tensor() -> None:
    body = chat(top_k=MAX_COUNT, top_p=MIN_TOP_P, seed=-(2**63), max_tokens=MAX_COUNT)

    assert torch.tensor([body.top_k, body.seed, body.max_tokens]).tolist() == [
        *(MAX_COUNT, -(2**63), MAX_COUNT)
    ]
    assert torch.tensor([body.top_p]) > 0
    with pytest.raises(ValidationError):
        chat(top_p=MIN_TOP_P / 10)


def test_hints_to_other_servers_pass() -> None:
    chat(
        store=True,
        metadata={"a": "b"},
        parallel_tool_calls=False,
        n=1,
        logit_bias={},
        response_format={"type": "text"},
        modalities=["text"],
        service_tier="auto",
    )


def test_limits_and_log_probs() -> None:
    assert chat(max_tokens=5, max_completion_tokens=7).token_limit == 7
    assert chat(max_tokens=5).token_limit == 5
    assert chat().token_limit is None
    assert chat().num_top_logprobs is None
    assert chat(logprobs=True).num_top_logprobs == 0
    assert chat(logprobs=True, top_logprobs=3).num_top_logprobs == 3


def test_stops() -> None:
    assert chat().stops == ()
    assert chat(stop="a").stops == ("a",)
    assert chat(stop=["a", "b"]).stops == ("a", "b")


@pytest.mark.parametrize(
    ("prompt", "taken"), [("a", "a"), (["a"], "a"), ([1, 2], [1, 2]), ([[1, 2]], [1, 2])]
)
def test_one_prompt_in_four_shapes(prompt: Any, taken: Any) -> None:
    body = CompletionBody.model_validate({"model": "tide", "prompt": prompt, "logprobs": 2})

    assert body.prompt == taken
    assert body.num_top_logprobs == 2


@pytest.mark.parametrize(
    "over",
    [
        {"prompt": ""},
        {"prompt": []},
        {"prompt": ["a", "b"]},
        {"prompt": None},
        {"echo": True},
        {"best_of": 2},
        {"suffix": "x"},
        {"logprobs": 6},
    ],
)
def test_text_calls_that_cannot_be_done(over: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompletionBody.model_validate({"model": "tide", "prompt": "a"} | over)
