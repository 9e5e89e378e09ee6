"""A base from nothing: any text can be written, special tokens are one each, folders are whole."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tidemill.errors import ConfigurationError
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.chat import decode_completion, encode_text, render_prompt
from tidemill.policy.fresh_base import (
    SPECIAL_TOKENS,
    BaseOrigin,
    LlamaShape,
    conversation_texts,
    new_llama,
    save_base,
    train_tokenizer,
)
from tidemill.settings import PolicySettings

SHAPE = LlamaShape(hidden_size=32, num_layers=1, num_heads=2, feed_forward=48, max_context=128)
ORIGIN = BaseOrigin(licence="Apache-2.0", made_by="tests")
TEXTS = [f"<|user|>switch the lamp {n} on<|end|><|assistant|>lamp {n} is on<|end|>" for n in "abcd"]


@pytest.fixture
def base(tmp_path: Path) -> BaseModel:
    tokenizer = train_tokenizer(TEXTS)
    model = new_llama(tokenizer, SHAPE, seed=1)
    save_base(model, tokenizer, tmp_path / "base", origin=ORIGIN)
    return load_base(tmp_path / "base", settings=PolicySettings(device="cpu"))


def test_the_vocabulary_writes_any_text(base: BaseModel) -> None:
    for text in ("switch the lamp", "日本語 🎈 \x00", "a  b\n"):
        assert decode_completion(base, encode_text(base, text)) == text
    assert len(encode_text(base, "switch the lamp")) < len("switch the lamp")
    assert all(len(encode_text(base, token)) == 1 for token in SPECIAL_TOKENS)
    assert len(base.tokenizer) <= 384


def test_no_merge_crosses_a_special_token() -> None:
    entries = train_tokenizer(TEXTS * 9).get_vocab()
    assert not [e for e in entries if e not in SPECIAL_TOKENS and ("|>" in e or "<|" in e)]


def test_the_template_shows_tools_calls_and_roles(base: BaseModel) -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": "lamp", "parameters": {"properties": {"on": {}}}},
        },
        {"type": "function", "function": {"name": "stop"}},
    ]
    call = {"function": {"name": "lamp", "arguments": '{"on":1}'}}
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "on"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "done"},
    ]
    text = base.tokenizer.decode(render_prompt(base, messages, tools))
    assert text == (
        "<|tools|>lamp(on); stop()<|end|><|system|>Be brief.<|end|><|user|>on<|end|>"
        '<|assistant|>{"name":"lamp","arguments":{"on":1}}<|end|><|tool|>done<|end|><|assistant|>'
    )
    call["function"] = {"name": "lamp", "arguments": {"on": 1}}  # type: ignore[dict-item]
    assert base.tokenizer.decode(render_prompt(base, messages, tools)) == text


def test_conversation_texts_are_what_the_model_reads() -> None:
    example = ([{"role": "user", "content": "on"}], (), "lamp on")
    assert list(conversation_texts([example])) == ["<|user|>on<|end|><|assistant|>lamp on<|end|>"]


def test_equal_seeds_give_equal_weights() -> None:
    tokenizer = train_tokenizer(TEXTS)
    before = torch.get_rng_state()
    one, same, other = (new_llama(tokenizer, SHAPE, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_failed_check_leaves_the_old_base(base: BaseModel) -> None:
    model = new_llama(base.tokenizer, SHAPE, seed=9)

    def refuse(folder: Path) -> None:
        assert (folder / "base.json").is_file()
        raise ConfigurationError("no")

    with pytest.raises(ConfigurationError, match="no"):
        save_base(model, base.tokenizer, base.path, origin=ORIGIN, check=refuse)
    cpu = PolicySettings(device="cpu")
    assert load_base(base.path, settings=cpu).digest == base.digest
    save_base(model, base.tokenizer, base.path, origin=ORIGIN)
    assert load_base(base.path, settings=cpu).digest != base.digest
    assert [entry.name for entry in base.path.parent.iterdir()] == ["base"]
    shutil.rmtree(base.path)
