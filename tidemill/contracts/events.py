"""The events on the log: what serving, the feedback API, the registry and the gate say to the rest.

Each is an immutable record with a `schema_version`; `codec.py` turns it into bytes and back. All of
one trajectory shares a key, so one partition sees all of it. `docs/events.md` has the wire format.
"""

from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from tidemill.contracts.ids import (
    PolicyVersion,
    is_feedback_id,
    is_interaction_id,
    is_trajectory_id,
)

INTERACTIONS = "tidemill.interactions"
FEEDBACK = "tidemill.feedback"
DEAD_LETTERS = "tidemill.dead-letters"
POLICIES = "tidemill.policies"
TOPICS = (INTERACTIONS, FEEDBACK, DEAD_LETTERS, POLICIES)

NO_EXPERT = -1
"""A routed-expert slot without a record; zero would be a valid expert."""


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"time without a zone: {moment.isoformat()}; send UTC, e.g. ...Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError as error:
        # Pydantic passes on only a ValueError as a complaint.
        raise ValueError("time outside the years 1 to 9999 in UTC") from error


# Of many events, few name a version that none named before.
@lru_cache(maxsize=1024)
def _version(text: str) -> str:
    PolicyVersion.parse(text)
    return text


UtcTime = Annotated[datetime, AfterValidator(_utc)]
VersionText = Annotated[str, AfterValidator(_version)]
Probability = Annotated[float, Field(gt=0, le=1)]
LogProb = Annotated[float, Field(ge=-3.4028234663852886e38, le=0, allow_inf_nan=False)]
"""Natural log; finite as float32, which is what learning computes in."""
KeptMass = Annotated[float, Field(gt=0, le=1.0001, allow_inf_nan=False)]
"""At most 1, but for the rounding of a sum over a whole vocabulary."""
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Event(BaseModel):
    """What all events have in common: frozen, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @property
    def key(self) -> str:
        """The partition key."""
        raise NotImplementedError


class Arm(StrEnum):
    """Which pointer the traffic assignment followed."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    PINNED = "pinned"
    """The caller asked for this version by name; no evidence for the gate."""
    EXTERNAL = "external"
    """The product serves itself and reported the interaction."""


class FinishReason(StrEnum):
    """Why generation ended."""

    STOP = "stop"
    LENGTH = "length"
    ABORTED = "aborted"
    ERROR = "error"


class ToolCall(Event):
    """One tool call that the completion held, and whether it obeys its declared schema."""

    name: str
    arguments: str
    """The argument text as produced: JSON when `valid`."""
    valid: bool
    reason: str | None = None
    """Why it is not valid."""


class Content(Event):
    """What was said, apart from everything else, so that it can be erased alone."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    completion: str


MIN_TEMPERATURE = 0.05
"""Below this nothing is sampled: serving answers greedily, and the learner takes no such answer,
since a log-prob's gradient grows with 1 / temperature."""


class Sampling(Event):
    """How the completion was sampled; log-probs are meaningless without it."""

    temperature: float = Field(gt=0, le=5, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0 = off."""
    seed: int | None = None
    max_tokens: int = Field(ge=1)

    @property
    def is_truncated(self) -> bool:
        """Whether some tokens could not be drawn, so that the kept mass is needed."""
        return self.top_p < 1 or self.top_k > 0


class InteractionServed(Event):
    """One served completion with everything that learning from it needs."""

    schema_version: Literal[1] = 1
    interaction_id: str
    trajectory_id: str
    turn: int = Field(ge=0)
    tenant: str = Field(min_length=1, max_length=128)
    model: str = Field(min_length=1, max_length=256)
    subject: str | None = Field(default=None, max_length=128)
    """Keyed hash of the end user; None = unknown."""
    consent_train: bool
    oldest_policy_version: VersionText
    newest_policy_version: VersionText
    arm: Arm
    assignment_probability: Probability
    content: Content
    context: str | None = Field(default=None, max_length=256)
    """Declared context (task, template); None = the learner hashes the prompt."""
    prompt_ids: tuple[TokenId, ...] = ()
    completion_ids: tuple[TokenId, ...] = ()
    behaviour_logprobs: tuple[LogProb, ...] | None = None
    """One for each completion token, natural log, at the sampling temperature; None = unknown."""
    kept_mass: tuple[KeptMass, ...] | None = None
    """Probability mass left by top-p/top-k at each token; None = untruncated or unknown."""
    sampling: Sampling
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: FinishReason
    routed_experts: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    """Expert indices [tokens, layers, k], -1 = no record; None = a dense model."""
    latency_ms: float = Field(ge=0, allow_inf_nan=False)
    requested_at: UtcTime
    served_at: UtcTime

    @property
    def key(self) -> str:
        """The trajectory."""
        return self.trajectory_id

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not is_interaction_id(self.interaction_id):
            raise ValueError(f"interaction_id is not <uuid>.<uuid>: {self.interaction_id!r}")
        if not self.interaction_id.startswith(f"{self.trajectory_id}."):
            raise ValueError("interaction_id names another trajectory than trajectory_id")
        for name in ("behaviour_logprobs", "kept_mass"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.completion_ids):
                raise ValueError(
                    f"{name} has {len(values)} values for {len(self.completion_ids)} tokens"
                )
        return self

    @property
    def is_malformed(self) -> bool:
        """Whether the output broke a declared form: it is scored, never dropped."""
        return self.finish_reason is FinishReason.ERROR or any(
            not call.valid for call in self.tool_calls
        )


class FeedbackSource(StrEnum):
    """Who gave the signal."""

    END_USER = "end_user"
    REVIEWER = "reviewer"
    VERIFIER = "verifier"
    JUDGE = "judge"


class Comment(Event):
    """A remark in words."""

    comment: str = Field(min_length=1, max_length=16_384)


class Demonstration(Event):
    """The text that the user wanted instead."""

    demonstration: str = Field(min_length=1, max_length=65_536)


class Edit(Event):
    """What became of the output: the fraction kept, or the text as it ended."""

    kept_fraction: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    final_text: str | None = Field(default=None, max_length=65_536)

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.kept_fraction is None) == (self.final_text is None):
            raise ValueError("an edit has either kept_fraction or final_text")
        return self


FiniteFloat = Annotated[float, Field(allow_inf_nan=False, strict=True)]
FeedbackValue = Annotated[bool, Field(strict=True)] | FiniteFloat | Comment | Demonstration | Edit


class FeedbackReceived(Event):
    """One raw user signal, as accepted."""

    schema_version: Literal[1] = 1
    feedback_id: str
    tenant: str = Field(min_length=1, max_length=128)
    interaction_id: str | None = None
    trajectory_id: str
    """Always set: of the interaction, or the target itself when `interaction_id` is None."""
    metric: str = Field(min_length=1, max_length=128)
    value: FeedbackValue
    source: FeedbackSource = FeedbackSource.END_USER
    rater: str | None = Field(default=None, max_length=128)
    """Keyed hash of who gave it; None = unknown."""
    at: UtcTime | None = None
    """The client's own time, kept but never used for order."""
    received_at: UtcTime
    body_digest: str
    """SHA-256 of the client's canonical body: tells a repeat from a conflict."""

    @property
    def key(self) -> str:
        """The trajectory."""
        return self.trajectory_id

    @property
    def target_id(self) -> str:
        """The interaction, or the trajectory when no interaction is named."""
        return self.interaction_id or self.trajectory_id

    @field_validator("feedback_id")
    @classmethod
    def _feedback_id(cls, text: str) -> str:
        if not is_feedback_id(text):
            raise ValueError(f"feedback_id must be 1 to 128 of letters, digits, _.:- : {text!r}")
        return text

    @model_validator(mode="after")
    def _target(self) -> Self:
        if not is_trajectory_id(self.trajectory_id):
            raise ValueError(f"trajectory_id is no UUID: {self.trajectory_id!r}")
        if self.interaction_id is not None and (
            not is_interaction_id(self.interaction_id)
            or not self.interaction_id.startswith(f"{self.trajectory_id}.")
        ):
            raise ValueError(f"interaction_id does not fit its trajectory: {self.interaction_id!r}")
        return self


class DeadLetterReason(StrEnum):
    """Why a record cannot be used."""

    UNDECODABLE = "undecodable"
    UNKNOWN_SCHEMA_VERSION = "unknown_schema_version"
    UNKNOWN_METRIC = "unknown_metric"
    WRONG_TYPE = "wrong_type"
    CONFLICTING_BODY = "conflicting_body"
    UNMATCHED = "unmatched"
    """Its interaction did not come within the declared time."""


class PolicyStatusChanged(Event):
    """A policy version moved in its lifecycle; for those who listen, never the truth itself."""

    schema_version: Literal[1] = 1
    model: str
    tenant: str
    policy_version: VersionText
    status: str
    reason: str
    at: UtcTime

    @property
    def key(self) -> str:
        """The model."""
        return self.model
