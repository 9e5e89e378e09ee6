"""Chat messages to token ids and back, by the base's own template."""

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from jinja2 import TemplateError

from tidemill.errors import ConfigurationError, ContractError
from tidemill.policy.base_model import BaseModel

_BREAKS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Code points that Unicode reserves for a program's own use."""


def render_prompt(
    base: BaseModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
) -> tuple[int, ...]:
    """Return the prompt's token ids, ending where the assistant's turn begins.

    Text in messages and tools that looks like a special token stays text: only the template's own
    special tokens are read as such, so nobody can open another role's turn from inside a message.

    Raises:
        ConfigurationError: the base has no chat template.
        ContractError: the template refuses these messages.
    """
    if not base.tokenizer.chat_template:
        raise ConfigurationError(f"the tokenizer in {base.path} has no chat template; add one")
    guard = _Guard(_special_texts(base.tokenizer), [*messages, *tools])
    try:
        text = base.tokenizer.apply_chat_template(
            [guard.protect(dict(message)) for message in messages],
            tools=[guard.protect(dict(tool)) for tool in tools] or None,
            add_generation_prompt=True,
            tokenize=False,
        )
    except (TemplateError, TypeError, ValueError, AttributeError, KeyError) as error:
        raise ContractError(f"the chat template refuses the messages: {error}") from error
    pieces = [encode_text(base, piece) for piece in guard.pieces(text)]
    return tuple(chain.from_iterable(pieces))


def encode_text(base: BaseModel, text: str) -> list[int]:
    """Return the token ids of a text, special tokens read as such, none added."""
    # The Rust tokenizer itself: its Python wrapper costs more than the work.
    ids: list[int] = base.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def decode_completion(base: BaseModel, ids: Sequence[int]) -> str:
    """Return the text of completion tokens, without special tokens."""
    text: str = base.tokenizer.backend_tokenizer.decode(list(ids), skip_special_tokens=True)
    return text


class _Guard:
    """Cuts special tokens in a caller's text in two, and the rendered text at those cuts."""

    def __init__(self, special_texts: Sequence[str], values: Sequence[Any]) -> None:
        """Choose a cutting mark that the values do not hold."""
        self._special = re.compile("|".join(map(re.escape, special_texts)) or r"(?!)")
        held = set().union(*map(_characters, values)) if values else set()
        self._mark = next((mark for mark in _BREAKS if mark not in held), None)

    def protect(self, value: Any) -> Any:
        """Return the value, every special token in its strings cut after the first character."""
        if isinstance(value, str):
            return self._special.sub(self._cut, value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.protect(item) for item in value]
        return value

    def pieces(self, text: str) -> list[str]:
        """Return the rendered text, cut where the marks are, without them."""
        if self._mark is None:
            return [text]
        return [piece for piece in text.split(self._mark) if piece]

    def _cut(self, match: re.Match[str]) -> str:
        if self._mark is None:
            raise ValueError("the messages hold every code point that Unicode keeps for programs")
        return f"{match[0][0]}{self._mark}{match[0][1:]}"


def _special_texts(tokenizer: Any) -> list[str]:
    texts = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
    return sorted((text for text in texts if text), key=len, reverse=True)


def _characters(value: Any) -> set[str]:
    """Return the reserved code points in all strings of a value."""
    if isinstance(value, str):
        return {mark for mark in _BREAKS if mark in value}
    if isinstance(value, Mapping):
        return _characters([*value.keys(), *value.values()])
    if isinstance(value, list | tuple):
        return set().union(*map(_characters, value)) if value else set()
    return set()
