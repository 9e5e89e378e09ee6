from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from serving.tokens import build_token_table, byte_of_character, entry_bytes
from tests.tiny_model import load_tiny_base


def test_a_byte_level_table_gives_each_byte_back(tmp_path: Path) -> None:
    tokenizer = load_tiny_base(tmp_path / "base").tokenizer
    table = build_token_table(tokenizer)
    text = "Grüße, 木 \n"
    ids = tokenizer.encode(text, add_special_tokens=False)

    assert b"".join(map(table.bytes_of, ids)).decode() == text
    assert table.text_of(ids[2]) == "\N{REPLACEMENT CHARACTER}"
    assert table.special_ids == set(tokenizer.all_special_ids)
    assert table.bytes_of(tokenizer.eos_token_id) == b"<|end|>"
    assert table.bytes_of(-1) == table.bytes_of(10**6) == b""


def test_a_sentencepiece_table() -> None:
    vocabulary = {"<unk>": 0, "\u2581lamp": 1, "<0xE6>": 2, "on": 3}
    core = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    core.decoder = decoders.ByteFallback()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>")
    table = build_token_table(tokenizer)

    assert table.bytes_by_id == (b"<unk>", b" lamp", b"\xe6", b"on")


@pytest.mark.parametrize(
    ("entry", "is_byte_level", "expected"),
    [
        (None, True, b""),
        ("\u0120on", True, b" on"),
        ("木", True, "木".encode()),
        ("<0x0A>", False, b"\n"),
        ("a\u2581b", False, b"a b"),
    ],
)
def test_entries(entry: str | None, is_byte_level: bool, expected: bytes) -> None:
    assert entry_bytes(entry, is_byte_level=is_byte_level) == expected


def test_every_byte_has_one_character() -> None:
    assert sorted(byte_of_character().values()) == list(range(256))
