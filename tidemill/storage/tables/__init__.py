"""Typed tables, one module a concern. Import `metadata` from here: it knows them all."""

from tidemill.storage.tables.access import ApiKeyRow, ErasureRequestRow, KeyEventRow
from tidemill.storage.tables.base import Row
from tidemill.storage.tables.ingest import (
    AcknowledgedCountRow,
    DeadLetterRow,
    DuplicateDeliveryRow,
    FeedbackRow,
    InteractionRow,
    LogOffsetRow,
)
from tidemill.storage.tables.judgements import JudgementRow
from tidemill.storage.tables.learning import (
    ExperienceRevisionRow,
    ExperienceRow,
    ExperienceUseRow,
    LearnerStepRow,
)
from tidemill.storage.tables.operations import HeartbeatRow, ReplicaVersionRow
from tidemill.storage.tables.quarantine import QuarantineRow
from tidemill.storage.tables.releases import (
    CanaryRow,
    GateRunRow,
    PolicyTransitionRow,
    PolicyVersionRow,
    TrafficRow,
)

metadata = Row.metadata

__all__ = [
    "AcknowledgedCountRow",
    "ApiKeyRow",
    "CanaryRow",
    "DeadLetterRow",
    "DuplicateDeliveryRow",
    "ErasureRequestRow",
    "ExperienceRevisionRow",
    "ExperienceRow",
    "ExperienceUseRow",
    "FeedbackRow",
    "GateRunRow",
    "HeartbeatRow",
    "InteractionRow",
    "JudgementRow",
    "KeyEventRow",
    "LearnerStepRow",
    "LogOffsetRow",
    "PolicyTransitionRow",
    "PolicyVersionRow",
    "QuarantineRow",
    "ReplicaVersionRow",
    "Row",
    "TrafficRow",
    "metadata",
]
