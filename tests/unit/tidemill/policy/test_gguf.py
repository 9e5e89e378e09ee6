"""GGUF files: a small one is written with the format's own package and read back."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tidemill.errors import ConfigurationError
from tidemill.policy.fresh_base import LlamaShape, new_llama, train_tokenizer
from tidemill.policy.gguf import load_gguf
from tidemill.policy.importing import ImportOptions, import_base
from tidemill.settings import PolicySettings

gguf = pytest.importorskip("gguf", reason="install gguf to test reading GGUF files")

SHAPE = LlamaShape(hidden_size=64, num_layers=2, num_heads=2, feed_forward=96, max_context=128)
_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """GGUF keeps the two halves of each rotary head next to each other."""
    size = weight.shape[0] // heads
    return weight.view(heads, 2, size // 2, -1).transpose(1, 2).reshape(weight.shape)


def write_gguf(path: Path, model: torch.nn.Module) -> None:
    """Write a tiny Llama with a byte vocabulary."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(SHAPE.max_context)
    writer.add_embedding_length(SHAPE.hidden_size)
    writer.add_block_count(SHAPE.num_layers)
    writer.add_feed_forward_length(SHAPE.feed_forward)
    writer.add_head_count(SHAPE.num_heads)
    writer.add_head_count_kv(SHAPE.num_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    tokenizer = train_tokenizer(["switch the lamp on"] * 4)
    entries = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    writer.add_vocab_size(len(entries))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(entries)
    special = set(tokenizer.all_special_ids)
    writer.add_token_types([3 if i in special else 1 for i in range(len(entries))])
    writer.add_token_merges(["s w"])
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_bos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_chat_template(tokenizer.chat_template)
    for name, tensor in model.state_dict().items():
        value = (
            interleave(tensor, SHAPE.num_heads) if "q_proj" in name or "k_proj" in name else tensor
        )
        writer.add_tensor(gguf_name(name), value.numpy().astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def gguf_name(name: str) -> str:
    """Return GGUF's name of a Llama tensor."""
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{_NAMES[rest.removesuffix('.weight')]}.weight"


def test_a_gguf_file_becomes_a_plain_base(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    written = new_llama(train_tokenizer(["switch the lamp on"] * 4), SHAPE, seed=3)
    write_gguf(tmp_path / "model.gguf", written)
    model, _ = load_gguf(tmp_path / "model.gguf")
    ids = torch.tensor([[20, 30, 40, 50]])
    with torch.no_grad():
        assert (model(ids).logits - written(ids).logits).abs().max() <= 1e-4
    assert not hasattr(model.config, "quantization_config")
    imported = import_base(
        tmp_path / "model.gguf",
        tmp_path / "base",
        options=ImportOptions(licence="Apache-2.0"),
        policy=PolicySettings(device="cpu"),
    )
    assert imported.report.max_difference <= 1e-4
    assert imported.report.template_shows_tools


def test_what_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\x00" * 40)
    with pytest.raises(ConfigurationError, match="cannot be read as GGUF"):
        load_gguf(tmp_path / "bad.gguf")
