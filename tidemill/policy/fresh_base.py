"""A base from nothing: a byte-level BPE with a chat template, a small Llama, their folder.

Weights are random here; `learner.supervised` teaches them.
"""

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tidemill.policy.base_model import hush_progress_bars, write_record

PAD, SYSTEM, TOOLS, USER, ASSISTANT, TOOL, END = SPECIAL_TOKENS = (
    "<|pad|>",
    "<|system|>",
    "<|tools|>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<|end|>",
)
"""One token each; what a user writes never becomes one of them."""
_BETWEEN_SPECIAL = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))

CHAT_TEMPLATE = """\
{%- if tools -%}
<|tools|>
{%- for tool in tools -%}
{%- set function = tool.function if tool.function else tool -%}
{{ function.name }}(
{%- for name, schema in ((function.parameters or {}).properties or {}).items() -%}
{{ name }}{{ '' if loop.last else ', ' }}
{%- endfor -%}
){{ '' if loop.last else '; ' }}
{%- endfor -%}
<|end|>
{%- endif -%}
{%- for message in messages -%}
<|{{ message.role }}|>
{{- message.content or '' -}}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function if call.function else call -%}
{"name":"{{ function.name }}","arguments":{{ function.arguments if function.arguments is string
else function.arguments | tojson(separators=(',', ':')) }}}
{%- endfor -%}
<|end|>
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""
"""Tools as signatures: whole schemas would be most of a small model's context."""


# transformers leaves these without types.
_TOKENIZER: Any = PreTrainedTokenizerFast
_GENERATION: Any = GenerationConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """How large a fresh Llama is."""

    hidden_size: int = 64
    num_layers: int = 4
    num_heads: int = 4
    feed_forward: int = 172
    """About 8/3 of the hidden size, as in Llama."""
    max_context: int = 512


def train_tokenizer(texts: Iterable[str], *, vocabulary: int = 384) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE learned from texts, with special tokens and the chat template.

    Any text can be written with it: all 256 bytes are tokens. `vocabulary` counts everything.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    pieces = (piece for text in texts for piece in _BETWEEN_SPECIAL.split(text) if piece)
    tokenizer.train_from_iterator(pieces, trainer)
    fast: PreTrainedTokenizerFast = _TOKENIZER(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[SYSTEM, TOOLS, USER, ASSISTANT, TOOL],
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def conversation_texts(
    examples: Iterable[tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]], str]],
) -> Iterator[str]:
    """Yield each (messages, tools, answer) as the text that a model reads and writes."""
    bare = train_tokenizer([])
    for messages, tools, answer in examples:
        prompt = bare.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            tokenize=False,
            add_generation_prompt=True,
        )
        yield f"{prompt}{answer}{END}"


def new_llama(tokenizer: Any, shape: LlamaShape, *, seed: int) -> LlamaForCausalLM:
    """Return a Llama with random weights that fits the tokenizer; equal seeds, equal weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_heads,
        intermediate_size=shape.feed_forward,
        max_position_embeddings=shape.max_context,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseOrigin:
    """What a base's record says of where it comes from."""

    licence: str
    """SPDX name."""
    made_by: str


def save_base(
    model: Any,
    tokenizer: Any,
    path: Path,
    *,
    origin: BaseOrigin,
    check: Callable[[Path], None] = lambda _: None,
) -> dict[str, Any]:
    """Write a base folder (safetensors, tokenizer, chat template, record) and return its record.

    Written beside the target, given to `check`, then renamed: the target never holds half a base,
    and whatever `check` raises leaves it as it was.
    """
    hush_progress_bars()
    aside = path.with_name(f".{path.name}.new")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    model.generation_config = _GENERATION(
        eos_token_id=model.generation_config.eos_token_id or tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(aside, safe_serialization=True)
    tokenizer.save_pretrained(aside)
    record = write_record(aside, licence=origin.licence, made_by=origin.made_by)
    check(aside)
    if path.exists():
        shutil.rmtree(path)
    aside.rename(path)
    return record
