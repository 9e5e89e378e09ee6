"""Bodies of requests, and the events they become. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator

from tidemill.contracts.events import (
    Arm,
    Comment,
    Content,
    Demonstration,
    Edit,
    FeedbackSource,
    FeedbackValue,
    FinishReason,
    InteractionServed,
    KeptMass,
    LogProb,
    Sampling,
    TokenId,
    ToolCall,
    UtcTime,
    VersionText,
)
from tidemill.contracts.ids import (
    FEEDBACK_ID_PATTERN,
    UUID_PATTERN,
    VERSION_PATTERN,
    new_interaction_id,
    new_trajectory_id,
    trajectory_of,
)
from tidemill.subjects import SubjectHasher
from tidemill.texts import is_storable


def _exact(pattern: str) -> str:
    return f"^{pattern}$"


_NO_NUL = _exact(r"[^\x00]*")
_FEEDBACK_ID = _exact(FEEDBACK_ID_PATTERN)
_TRAJECTORY_ID = _exact(UUID_PATTERN)
_INTERACTION_ID = _exact(rf"{UUID_PATTERN}\.{UUID_PATTERN}")

SENTENCES: Mapping[str, str] = {
    _NO_NUL: "a text must not hold NUL",
    _FEEDBACK_ID: "must be 1 to 128 letters, digits, _ . : -",
    _TRAJECTORY_ID: "must be a UUID in lower case",
    _INTERACTION_ID: "must be <uuid>.<uuid>, as the response named it",
}
"""What a text that breaks a pattern is told: a pattern is a bad explanation."""

# Patterns and not functions: these are checked for every feedback, at the speed of pydantic's core.
Text = Annotated[str, Field(pattern=_NO_NUL)]
FeedbackId = Annotated[str, Field(pattern=_FEEDBACK_ID)]
TrajectoryId = Annotated[str, Field(pattern=_TRAJECTORY_ID)]
InteractionId = Annotated[str, Field(pattern=_INTERACTION_ID)]
Version = Annotated[
    VersionText, WithJsonSchema({"type": "string", "pattern": _exact(VERSION_PATTERN)})
]


class Body(BaseModel):
    """What all bodies have in common: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FeedbackBody(Body):
    """One user signal as a product sends it."""

    feedback_id: FeedbackId | None = None
    """The product's own id of the event; makes a repeat harmless."""
    interaction_id: InteractionId | None = None
    trajectory_id: TrajectoryId | None = None
    metric: Annotated[Text, Field(min_length=1, max_length=128)]
    value: FeedbackValue
    source: FeedbackSource = FeedbackSource.END_USER
    rater: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    """Raw id of who gave it; only its keyed hash is kept."""
    at: UtcTime | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.interaction_id is None and self.trajectory_id is None:
            raise ValueError("give interaction_id or trajectory_id")
        if self.interaction_id is not None and self.trajectory_id is not None:
            _check_pair(self.interaction_id, self.trajectory_id)
        if not isinstance(self.value, bool | float) and not _is_storable(self.value):
            raise ValueError("value: a text must not hold NUL or half a surrogate pair")
        return self


class InteractionBody(Body):
    """One completion that the product served itself."""

    interaction_id: InteractionId | None = None
    trajectory_id: TrajectoryId | None = None
    turn: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    model: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    subject: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    """Raw id of the end user; only its keyed hash is kept."""
    consent: bool | None = None
    policy_version: Annotated[
        VersionText, WithJsonSchema({"type": "string", "pattern": _exact(VERSION_PATTERN)})
    ]
    """The version that produced the completion."""
    content: Content
    context: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    prompt_ids: tuple[TokenId, ...] = ()
    completion_ids: tuple[TokenId, ...] = ()
    behaviour_logprobs: tuple[LogProb, ...] | None = None
    kept_mass: tuple[KeptMass, ...] | None = None
    sampling: Sampling
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    latency_ms: Annotated[float, Field(ge=0, le=86_400_000, allow_inf_nan=False)] = 0.0
    served_at: UtcTime
    """The product's own time; required, so that a repeat has the same bytes."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        try:
            self.requested_at()
        except OverflowError as error:
            raise ValueError("served_at less latency_ms lies before the year 1") from error
        return self

    def requested_at(self) -> datetime:
        """Return when the request came: `latency_ms` before it was served.

        Raises:
            OverflowError: before the year 1; no body that was validated raises it.
        """
        return self.served_at - timedelta(milliseconds=self.latency_ms)

    def to_event(
        self, *, tenant: str, model: str, hasher: SubjectHasher, consent_default: bool
    ) -> InteractionServed:
        """Return the event.

        Raises:
            ValidationError: ids or lengths do not fit each other.
        """
        trajectory = self.trajectory_id
        if trajectory is None:
            named = self.interaction_id
            trajectory = new_trajectory_id() if named is None else trajectory_of(named)
        kept: dict[str, Any] = {name: getattr(self, name) for name in _SAME}
        return InteractionServed(
            interaction_id=self.interaction_id or new_interaction_id(trajectory),
            trajectory_id=trajectory,
            tenant=tenant,
            model=self.model or model,
            subject=None if self.subject is None else hasher.subject(tenant, self.subject),
            consent_train=consent_default if self.consent is None else self.consent,
            oldest_policy_version=self.policy_version,
            newest_policy_version=self.policy_version,
            arm=Arm.EXTERNAL,
            assignment_probability=1.0,
            requested_at=self.requested_at(),
            **kept,
        )


_SAME = (
    "turn",
    "content",
    "context",
    "prompt_ids",
    "completion_ids",
    "behaviour_logprobs",
    "kept_mass",
    "sampling",
    "tool_calls",
    "finish_reason",
    "latency_ms",
    "served_at",
)
"""Fields that go into the event as they are."""


def _check_pair(interaction_id: str, trajectory_id: str) -> None:
    if trajectory_of(interaction_id) != trajectory_id:
        raise ValueError("interaction_id belongs to another trajectory than trajectory_id")


def _is_storable(value: Comment | Demonstration | Edit) -> bool:
    texts = (text for text in dict(value).values() if isinstance(text, str))
    return all(is_storable(text) for text in texts)
