"""HTTP bodies of the completion calls, as the official `openai` client sends them.

Every parameter of that API is accepted, ignored on purpose, or refused by name: none is dropped
silently. `docs/serving.md` has the list. These are not the events on the log.
"""

import json
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

MAX_TOP_LOGPROBS = 20
MAX_TOP_LOGPROBS_LEGACY = 5
MAX_STOPS = 4
MAX_COUNT = 2**31 - 1
"""Above every vocabulary and context; a tensor of the engine holds it."""
MIN_TOP_P = 1e-30
"""float32 would round less to 0, and no token would be left."""
_FUNCTION_NAME = r"^[A-Za-z0-9_.\-]{1,64}$"


def _storable(value: Any) -> Any:
    """Refuse what could not go into an event: NaN, infinity, lone surrogates."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError("holds NaN, infinity, a lone surrogate, or nests too deeply") from error
    return value


def _stops(value: str | list[str] | None) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else tuple(value or ())
    if len(stops) > MAX_STOPS or any(not 1 <= len(stop) <= 256 for stop in stops):
        raise ValueError(f"at most {MAX_STOPS} stop sequences of 1 to 256 characters")
    return stops


Storable = AfterValidator(_storable)
Text = Annotated[str, Storable]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class StreamOptions(_Body):
    """What a stream carries beside the text."""

    include_usage: bool = False
    include_obfuscation: bool = False
    """Accepted; nothing is added."""


class GenerationBody(_Body):
    """What both calls share."""

    model: str = Field(min_length=1, max_length=256)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2, allow_inf_nan=False)
    top_p: float | None = Field(default=None, ge=MIN_TOP_P, le=1, allow_inf_nan=False)
    top_k: int | None = Field(default=None, ge=0, le=MAX_COUNT)
    """An extension (`extra_body`); 0 = off."""
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: Annotated[str | list[Text] | None, Storable, AfterValidator(_stops)] = None
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    user: Text | None = Field(default=None, max_length=512)

    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None

    @field_validator("n", "presence_penalty", "frequency_penalty", "logit_bias", check_fields=False)
    @classmethod
    def _neutral(cls, value: Any, info: ValidationInfo) -> Any:
        neutral = {"n": (None, 1), "logit_bias": (None, {})}.get(str(info.field_name), (None, 0))
        return refuse_unless(value, neutral=neutral, name=str(info.field_name))

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream=true")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop sequences."""
        return tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with its token counts."""
        return self.stream_options is not None and self.stream_options.include_usage


def refuse_unless(value: Any, *, neutral: tuple[Any, ...], name: str) -> Any:
    """Let a parameter pass only where it changes nothing.

    Raises:
        PydanticCustomError: it would have to change the answer, which this server cannot do.
    """
    if value not in neutral:
        raise PydanticCustomError(
            "unsupported_value",
            "{name} is supported only as {allowed}: see docs/serving.md",
            {"name": name, "allowed": " or ".join(repr(v) for v in neutral if v is not None)},
        )
    return value


class Function(_Body):
    """A tool that the model may call."""

    name: str = Field(pattern=_FUNCTION_NAME)
    description: Text | None = None
    parameters: Annotated[dict[str, Any], Storable] = Field(default_factory=dict)
    strict: bool | None = None


class Tool(_Body):
    """One declared tool."""

    type: Literal["function"]
    function: Function


class ChosenFunction(_Body):
    """The name of a tool."""

    name: str = Field(pattern=_FUNCTION_NAME)


class ToolChoice(_Body):
    """The one tool that is offered."""

    type: Literal["function"]
    function: ChosenFunction


class TextPart(_Body):
    """A piece of a message; only text is understood."""

    type: Literal["text", "refusal"]
    text: Text = ""
    refusal: Text = ""


class CalledFunction(_Body):
    """The name and the argument text of an earlier call."""

    name: str = Field(max_length=256)
    arguments: Text


class PastToolCall(_Body):
    """A call that an earlier assistant turn made."""

    id: str = Field(max_length=256)
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(_Body):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | list[TextPart] | None = None
    name: Text | None = Field(default=None, max_length=256)
    tool_calls: list[PastToolCall] | None = None
    tool_call_id: str | None = Field(default=None, max_length=256)
    refusal: Text | None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None

    def plain(self) -> dict[str, Any]:
        """Return what the chat template reads: content as one string, absent fields left out."""
        content = self.content
        if isinstance(content, list):
            content = "".join(part.text or part.refusal for part in content)
        message: dict[str, Any] = {
            "role": "system" if self.role == "developer" else self.role,
            "content": content or "",
        }
        if self.name is not None:
            message["name"] = self.name
        if self.tool_calls:
            message["tool_calls"] = [call.model_dump() for call in self.tool_calls]
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        return message


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, max_length=1024)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS)
    tools: list[Tool] | None = Field(default=None, max_length=128)
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None

    parallel_tool_calls: Any = None
    """Ignored, like all that follow: hints to other servers that change no answer here."""
    store: Any = None
    metadata: Any = None
    service_tier: Any = None
    prompt_cache_key: Any = None
    prompt_cache_retention: Any = None
    safety_identifier: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None

    @field_validator("response_format", "modalities")
    @classmethod
    def _text_only(cls, value: Any, info: ValidationInfo) -> Any:
        text = {"type": "text"} if info.field_name == "response_format" else ["text"]
        return refuse_unless(value, neutral=(None, text), name=str(info.field_name))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        names = {tool.function.name for tool in self.tools or ()}
        if isinstance(self.tool_choice, ToolChoice) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice names no declared tool; declared: {sorted(names)}")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice 'required' needs tools")
        return self

    @property
    def token_limit(self) -> int | None:
        """The newer name of the limit wins."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def num_top_logprobs(self) -> int | None:
        """Alternatives for each token; None = no log-probs at all."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def offered_tools(self) -> tuple[dict[str, Any], ...]:
        """Return the tools that the model is shown: all, the chosen one, or none."""
        if self.tool_choice == "none":
            return ()
        tools = self.tools or []
        if isinstance(self.tool_choice, ToolChoice):
            chosen = self.tool_choice.function.name
            tools = [tool for tool in tools if tool.function.name == chosen]
        return tuple(tool.model_dump(exclude_none=True) for tool in tools)

    @property
    def must_call(self) -> bool:
        """Whether an answer without a call breaks what the caller demanded."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, ToolChoice)


def _one_prompt(value: Any) -> Any:
    """Take a list of one prompt for that prompt."""
    if isinstance(value, list) and value and isinstance(value[0], str | list):
        refuse_unless(len(value), neutral=(1,), name="the number of prompts")
        value = value[0]
    if value in ("", []):
        raise ValueError("the prompt is empty")
    return value


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: Annotated[str | list[int], BeforeValidator(_one_prompt), Storable]
    logprobs: int | None = Field(default=None, ge=0, le=MAX_TOP_LOGPROBS_LEGACY)
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None

    @field_validator("best_of", "echo", "suffix")
    @classmethod
    def _unsupported(cls, value: Any, info: ValidationInfo) -> Any:
        neutral = {"best_of": (None, 1), "echo": (None, False)}.get(str(info.field_name), (None,))
        return refuse_unless(value, neutral=neutral, name=str(info.field_name))

    @property
    def num_top_logprobs(self) -> int | None:
        """Alternatives for each token; None = no log-probs at all."""
        return self.logprobs
