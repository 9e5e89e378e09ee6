"""A base folder: loaded only as it was recorded, and only from files that cannot run."""

import json
from pathlib import Path

import pytest
import torch

from tests.tiny_model import load_tiny_base, tiny_base
from tidemill.errors import ConfigurationError, SnapshotCorruptError
from tidemill.policy.base_model import load_base, load_tokenizer, read_record
from tidemill.policy.devices import choose_device, choose_dtype, prepare_torch
from tidemill.settings import PolicySettings

CPU = PolicySettings(device="cpu")


def test_equal_seeds_give_equal_digests(tmp_path: Path) -> None:
    one, same, other = (
        read_record(tiny_base(tmp_path / name, seed=seed))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one == same
    assert one["digest"] != other["digest"]
    assert one["tokenizer_digest"] == other["tokenizer_digest"]


def test_a_loaded_base_knows_its_limits(tmp_path: Path) -> None:
    base = load_tiny_base(tmp_path)
    assert base.max_context == 1024
    assert base.vocabulary == base.model.get_input_embeddings().num_embeddings == 260
    assert base.end_ids == {base.tokenizer.eos_token_id}
    assert base.pad_id == base.tokenizer.pad_token_id
    assert not base.model.training
    assert not any(p.requires_grad for p in base.model.parameters())
    assert base.digest == read_record(tmp_path)["digest"]


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_changed_file_is_found(tmp_path: Path, name: str) -> None:
    path = tiny_base(tmp_path)
    data = bytearray((path / name).read_bytes())
    data[-5] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(SnapshotCorruptError, match="digest"):
        load_base(path, settings=CPU)


def test_a_changed_template_is_found(tmp_path: Path) -> None:
    path = tiny_base(tmp_path)
    (path / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(SnapshotCorruptError, match="tokenizer_digest"):
        load_base(path, settings=CPU)


def test_what_is_no_base_says_how_to_make_one(tmp_path: Path) -> None:
    for content in (None, "no json"):
        if content is not None:
            (tmp_path / "base.json").write_text(content)
        with pytest.raises(ConfigurationError, match="tidemill base train"):
            load_base(tmp_path, settings=CPU)


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    path = tiny_base(tmp_path)
    (path / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(SnapshotCorruptError, match="cannot be read"):
        load_base(path, settings=CPU)
    (path / "model.safetensors").unlink()
    with pytest.raises(SnapshotCorruptError, match="holds no"):
        load_base(path, settings=CPU)


def test_a_slow_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[UNK]\n[PAD]\n[CLS]\n[SEP]\n[MASK]\na\n")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "CTRLTokenizer"})
    )
    (tmp_path / "vocab.json").write_text('{"a": 0, "<unk>": 1}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    with pytest.raises(ConfigurationError, match=r"tokenizer\.json"):
        load_tokenizer(tmp_path)


def test_devices_are_what_the_settings_say() -> None:
    prepare_torch(CPU)
    assert torch.get_num_threads() == 1
    assert choose_device(CPU) == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "cpu"
    assert choose_device(PolicySettings()).type == expected
    assert choose_dtype(PolicySettings(dtype="bfloat16")) is torch.bfloat16
    for name in ("quantum", "cuda:99"):
        with pytest.raises(ConfigurationError, match="use auto, cpu or cuda"):
            choose_device(PolicySettings(device=name))
