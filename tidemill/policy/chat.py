"""Chat messages to token ids and back, by the base's own template."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError

from tidemill.errors import ConfigurationError, ContractError
from tidemill.policy.base_model import BaseModel


def render_prompt(
    base: BaseModel,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """Return the prompt's token ids, ending where the assistant's turn begins.

    Raises:
        ConfigurationError: the base has no chat template.
        ContractError: the template refuses these messages.
    """
    if not base.tokenizer.chat_template:
        raise ConfigurationError(f"the tokenizer in {base.path} has no chat template; add one")
    try:
        text = base.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            tools=[dict(tool) for tool in tools] or None,
            add_generation_prompt=True,
            tokenize=False,
        )
    except (TemplateError, TypeError, ValueError) as error:
        raise ContractError(f"the chat template refuses the messages: {error}") from error
    return encode_text(base, text)


def encode_text(base: BaseModel, text: str) -> list[int]:
    """Return the token ids of a text, special tokens read as such, none added."""
    ids: list[int] = base.tokenizer.encode(text, add_special_tokens=False)
    return ids


def decode_completion(base: BaseModel, ids: Sequence[int]) -> str:
    """Return the text of completion tokens, without special tokens."""
    text: str = base.tokenizer.decode(
        list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
    )
    return text
