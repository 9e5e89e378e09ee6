"""What the feedback API answers, as its published schema describes it. Pure."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

ItemStatus = Literal["accepted", "duplicate", "rejected", "retry"]
FeedbackState = Literal[
    "accepted", "joined", "pending", "late", "superseded", "dead_lettered", "erased"
]
InteractionState = Literal["open", "rewarded", "defaulted", "malformed", "excluded", "erased"]


class Problem(BaseModel):
    """Why a request was refused (RFC 9457); the ids are those of the record that it is about."""

    type: Literal["about:blank"]
    title: str
    status: int
    detail: str
    field: str | None = None
    feedback_id: str | None = None
    interaction_id: str | None = None
    trajectory_id: str | None = None


class FeedbackAnswer(BaseModel):
    """The log has the feedback."""

    feedback_id: str
    status: Literal["accepted", "duplicate"]


class InteractionAnswer(BaseModel):
    """The log has the interaction."""

    interaction_id: str
    trajectory_id: str
    status: Literal["accepted", "duplicate"]


class FeedbackItem(BaseModel):
    """What became of one feedback of a batch."""

    index: int
    status: ItemStatus
    feedback_id: str | None
    reason: str | None


class FeedbackItems(BaseModel):
    """An answer for each feedback of a batch, in order."""

    items: list[FeedbackItem]


class InteractionItem(BaseModel):
    """What became of one interaction of a batch."""

    index: int
    status: ItemStatus
    interaction_id: str | None
    trajectory_id: str | None
    reason: str | None


class InteractionItems(BaseModel):
    """An answer for each interaction of a batch, in order."""

    items: list[InteractionItem]


class PartialSuccess(BaseModel):
    """How many records were refused for good, and why."""

    rejectedLogRecords: str
    errorMessage: str


class EvaluationsAnswer(BaseModel):
    """All other records are in the log (`ExportLogsServiceResponse` of OTLP)."""

    partialSuccess: PartialSuccess | None = None


class DeadLetterView(BaseModel):
    """Why a record with this id could not be used."""

    reason: str
    detail: str
    appended_at: datetime


class FeedbackView(BaseModel):
    """Where a feedback stands; what it said is there once the worker has read it."""

    feedback_id: str
    state: FeedbackState
    dead_letters: list[DeadLetterView]
    trajectory_id: str | None = None
    interaction_id: str | None = None
    metric: str | None = None
    value: Any = None
    source: str | None = None
    appended_at: datetime | None = None


class InteractionView(BaseModel):
    """Where an interaction stands, and its reward once there is one."""

    interaction_id: str
    trajectory_id: str
    turn: int
    model: str
    policy_version: str
    arm: str
    state: InteractionState
    excluded_reason: str | None
    appended_at: datetime
    closes_at: datetime
    reward: float | None
    components: Any


class MetricsView(BaseModel):
    """What the metrics file declares, and its hash in each experience."""

    metrics: dict[str, dict[str, Any]]
    verifiers: dict[str, dict[str, Any]]
    judges: dict[str, dict[str, Any]]
    reward_spec_hash: str


class ErasureView(BaseModel):
    """Where a request to erase a subject stands."""

    request_id: str
    state: Literal["queued"]
    requested_at: datetime
    finished_at: datetime | None


class HealthView(BaseModel):
    """The process works."""

    status: Literal["ok"]


class ReadyView(BaseModel):
    """Whether feedback can be stored, and what is missing where not."""

    ready: bool
    missing: list[str]
