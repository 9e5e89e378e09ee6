"""What a product tells: feedback and interactions, typed, and their bytes.

Each record is turned into bytes once, when it is made: every attempt then sends the same ones.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NotRequired, TypedDict

from tidemill.client.ids import new_id, new_interaction_id
from tidemill.errors import InvalidRecordError

Source = Literal["end_user", "reviewer", "verifier", "judge"]
FinishReason = Literal["stop", "length", "aborted", "error"]

_FEEDBACK_ID = re.compile(r"[A-Za-z0-9_.:\-]{1,128}")


class Comment(TypedDict):
    """A remark in words."""

    comment: str


class Demonstration(TypedDict):
    """The text that the user wanted instead."""

    demonstration: str


class KeptFraction(TypedDict):
    """How much of the output the user kept, in [0, 1]."""

    kept_fraction: float


class FinalText(TypedDict):
    """What the user made of the output."""

    final_text: str


Value = bool | float | Comment | Demonstration | KeptFraction | FinalText


def comment(text: str) -> Comment:
    """Return the value of a metric of type `comment`."""
    return {"comment": text}


def demonstration(text: str) -> Demonstration:
    """Return the value of a metric of type `demonstration`."""
    return {"demonstration": text}


def kept_fraction(fraction: float) -> KeptFraction:
    """Return the value of a metric of type `edit`, by the fraction in [0, 1] that was kept."""
    return {"kept_fraction": fraction}


def final_text(text: str) -> FinalText:
    """Return the value of a metric of type `edit`, by the text as it ended."""
    return {"final_text": text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One user signal.

    Raises:
        InvalidRecordError: it names no target, or has a form that the feedback API never takes.
    """

    metric: str
    """A name from the metrics file."""
    value: Value
    interaction_id: str | None = None
    """What it is about; this or `trajectory_id`, as the metric's level declares."""
    trajectory_id: str | None = None
    feedback_id: str = field(default_factory=new_id)
    """Your own id of the event, where you have one: it makes a repeat harmless for good."""
    source: Source = "end_user"
    rater: str | None = None
    """Your id of who gave it; only its keyed hash is kept."""
    at: datetime | None = None
    """Your time, with a zone; kept, never used for order."""
    encoded: bytes = field(init=False, repr=False, compare=False)
    """The JSON document that is sent."""

    def __post_init__(self) -> None:
        if _FEEDBACK_ID.fullmatch(self.feedback_id) is None:
            raise InvalidRecordError(
                f"feedback_id {self.feedback_id!r} must be 1 to 128 letters, digits, _ . : -"
            )
        if self.interaction_id is None and self.trajectory_id is None:
            raise InvalidRecordError("feedback needs an interaction_id or a trajectory_id")
        document = {
            "feedback_id": self.feedback_id,
            "interaction_id": self.interaction_id,
            "trajectory_id": self.trajectory_id,
            "metric": self.metric,
            "value": self.value,
            "source": self.source,
            "rater": self.rater,
            "at": _moment("at", self.at),
        }
        object.__setattr__(self, "encoded", _encode(document))


class Content(TypedDict):
    """What was said."""

    messages: Sequence[Mapping[str, Any]]
    completion: str
    tools: NotRequired[Sequence[Mapping[str, Any]]]


class Sampling(TypedDict):
    """How the completion was sampled."""

    temperature: float
    max_tokens: int
    top_p: NotRequired[float]
    top_k: NotRequired[int]
    seed: NotRequired[int | None]


class ToolCall(TypedDict):
    """One tool call of the completion, and whether it obeys its declared schema."""

    name: str
    arguments: str
    valid: bool
    reason: NotRequired[str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """One completion that the product served itself; `docs/events.md` tells of the fields.

    Raises:
        InvalidRecordError: a field has a form that the feedback API never takes.
    """

    policy_version: str
    content: Content
    sampling: Sampling
    trajectory_id: str | None = None
    """None = that of `interaction_id`, or a UUIDv7 is made."""
    interaction_id: str | None = None
    """None = `<trajectory_id>.<UUIDv7>` is made."""
    served_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """With a zone."""
    turn: int = 0
    model: str | None = None
    subject: str | None = None
    """Your id of the end user; only its keyed hash is kept."""
    consent: bool | None = None
    """Whether it may be trained on; None = `ingest.consent_default` holds."""
    context: str | None = None
    prompt_ids: Sequence[int] = ()
    """Token ids; without them nobody learns from it."""
    completion_ids: Sequence[int] = ()
    behaviour_logprobs: Sequence[float] | None = None
    """Natural logs, one for each completion token, at the sampling temperature."""
    kept_mass: Sequence[float] | None = None
    tool_calls: Sequence[ToolCall] = ()
    finish_reason: FinishReason = "stop"
    latency_ms: float = 0.0
    encoded: bytes = field(init=False, repr=False, compare=False)
    """The JSON document that is sent."""

    def __post_init__(self) -> None:
        trajectory, named = self.trajectory_id, self.interaction_id
        if trajectory is None:
            trajectory = new_id() if named is None else named.partition(".")[0]
        object.__setattr__(self, "trajectory_id", trajectory)
        object.__setattr__(self, "interaction_id", named or new_interaction_id(trajectory))
        document = {name: getattr(self, name) for name in _SAME}
        document |= {name: list(getattr(self, name)) for name in _LISTS}
        for name in ("behaviour_logprobs", "kept_mass"):
            values = getattr(self, name)
            document[name] = None if values is None else list(values)
        document["served_at"] = _moment("served_at", self.served_at)
        object.__setattr__(self, "encoded", _encode(document))


_SAME = (
    "interaction_id",
    "trajectory_id",
    "turn",
    "model",
    "subject",
    "consent",
    "policy_version",
    "content",
    "context",
    "sampling",
    "finish_reason",
    "latency_ms",
)
_LISTS = ("prompt_ids", "completion_ids", "tool_calls")


def _moment(name: str, at: datetime | None) -> str | None:
    if at is not None and at.utcoffset() is None:
        raise InvalidRecordError(f"{name} {at.isoformat()} has no zone; give an aware time")
    return None if at is None else at.isoformat()


def _encode(document: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in document.items() if value is not None}
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        # NaN, half a surrogate pair, or a type that JSON has no form for, such as NumPy's.
        raise InvalidRecordError(f"this has no form in JSON: {error}") from error
