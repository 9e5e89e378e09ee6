"""Tokens as text and bytes, for the log-probs in responses. Pure but for the tokenizer it reads.

A byte-level vocabulary writes each byte as one printable character; a SentencePiece one writes
spaces as U+2581 and lone bytes as `<0xAB>`.
"""

import functools
import re
from dataclasses import dataclass
from typing import Any, Protocol

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"


class Tokenizer(Protocol):
    """What is needed of a Hugging Face fast tokenizer."""

    @property
    def all_special_ids(self) -> list[int]:
        """Ids that never show in text."""
        ...

    @property
    def backend_tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` behind it."""
        ...

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        """Return vocabulary entries."""
        ...


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Bytes of each token id of one tokenizer."""

    bytes_by_id: tuple[bytes, ...]
    special_ids: frozenset[int]

    def bytes_of(self, token_id: int) -> bytes:
        """Return a token's bytes; an id beyond the vocabulary has none."""
        is_known = 0 <= token_id < len(self.bytes_by_id)
        return self.bytes_by_id[token_id] if is_known else b""

    def text_of(self, token_id: int) -> str:
        """Return a token's text; bytes that are no whole character show as U+FFFD."""
        return self.bytes_of(token_id).decode("utf-8", errors="replace")


def build_token_table(tokenizer: Tokenizer) -> TokenTable:
    """Read a tokenizer's whole vocabulary once."""
    size = tokenizer.backend_tokenizer.get_vocab_size(with_added_tokens=True)
    entries = tokenizer.convert_ids_to_tokens(list(range(size)))
    special_ids = frozenset(tokenizer.all_special_ids)
    is_byte_level = "ByteLevel" in str(tokenizer.backend_tokenizer.decoder)
    return TokenTable(
        tuple(
            _special(entry) if i in special_ids else entry_bytes(entry, is_byte_level=is_byte_level)
            for i, entry in enumerate(entries)
        ),
        special_ids,
    )


def entry_bytes(entry: str | None, *, is_byte_level: bool) -> bytes:
    """Return the bytes that a vocabulary entry stands for; None (a hole in the ids) has none."""
    if entry is None:
        return b""
    if is_byte_level:
        table = byte_of_character()
        if all(character in table for character in entry):
            return bytes(table[character] for character in entry)
        return entry.encode()  # an added token is written as it is
    match = _BYTE_TOKEN.fullmatch(entry)
    return bytes([int(match[1], 16)]) if match else entry.replace(_SPACE, " ").encode()


@functools.cache
def byte_of_character() -> dict[str, int]:
    """Return GPT-2's table: printable Latin-1 stands for itself, the rest follows from U+0100."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable}
    table.update({chr(256 + place): byte for place, byte in enumerate(others)})
    return table


def _special(entry: str | None) -> bytes:
    return (entry or "").encode()
