"""Text completions as the official `openai` client sends and reads them."""

from collections.abc import Iterator

import openai
import pytest

from tests.scripted_serving import LOGPROB, Scripted, scripted_serving
from tidemill.policy.base_model import BaseModel


@pytest.fixture(scope="module")
def server(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    with scripted_serving(base, tmp_path_factory.mktemp("serving"), lambda _: "hello") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Scripted) -> Iterator[openai.OpenAI]:
    with server.client() as client:
        yield client


def test_a_text_prompt(client: openai.OpenAI, server: Scripted) -> None:
    answer = client.completions.create(model="tide", prompt="abc", logprobs=1)

    assert answer.choices[0].text == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["h", "e", "l", "l", "o"]
    assert answer.choices[0].logprobs.text_offset == [0, 1, 2, 3, 4]
    assert answer.choices[0].logprobs.token_logprobs == [LOGPROB] * 5
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3
    assert server.events()[-1].content.messages == ({"role": "user", "content": "abc"},)


def test_token_ids_as_prompt_are_taken_as_they_are(
    client: openai.OpenAI, server: Scripted, base: BaseModel
) -> None:
    ids = base.tokenizer.encode("xyz", add_special_tokens=False)
    client.completions.create(model="tide", prompt=ids)

    assert server.events()[-1].prompt_ids == tuple(ids)
    assert server.events()[-1].content.messages[0]["content"] == "xyz"


def test_a_token_id_beyond_the_vocabulary_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="not in the vocabulary"):
        client.completions.create(model="tide", prompt=[100_000])


@pytest.mark.parametrize("prompt", ["", ["a", "b"], []])
def test_prompts_that_are_not_one(client: openai.OpenAI, prompt: str | list[str]) -> None:
    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="tide", prompt=prompt)


def test_a_stream(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model="tide",
            prompt=["abc"],
            stream=True,
            logprobs=0,
            stream_options={"include_usage": True},
        )
    )

    assert "".join(c.choices[0].text for c in chunks if c.choices) == "hello"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    offsets = [
        offset
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for offset in choice.logprobs.text_offset or []
    ]
    assert offsets == [0, 1, 2, 3, 4]
