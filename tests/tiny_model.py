"""A tiny random base: hidden 32, two layers, a byte-level tokenizer, a chat template."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tidemill.policy.base_model import BaseModel, load_base, write_record
from tidemill.settings import PolicySettings

_SPECIAL = ("<|pad|>", "<|user|>", "<|assistant|>", "<|end|>")
_TEMPLATE = (
    "{% if tools %}<|user|>tools: {{ tools | tojson }}<|end|>{% endif %}"
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}<|assistant|>{% else %}<|user|>{% endif %}"
    "{{ message.content }}<|end|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def tiny_base(path: Path, *, seed: int = 0) -> Path:
    """Write a base folder and return it; equal seeds give equal bytes."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(path)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=1024,
        # Larger than usual, so that a random model has opinions worth comparing.
        initializer_range=0.2,
        tie_word_embeddings=False,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(path, safe_serialization=True)
    write_record(path, licence="Apache-2.0", made_by="tests")
    return path


def load_tiny_base(path: Path, *, seed: int = 0) -> BaseModel:
    """Write a base folder and load it on the CPU."""
    return load_base(tiny_base(path, seed=seed), settings=PolicySettings(device="cpu"))


def _tokenizer() -> PreTrainedTokenizerFast:
    """One token for each byte, so nothing has to be trained."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*_SPECIAL, *alphabet))}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
        chat_template=_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
