"""What ingest keeps: interactions, feedback, dead letters, offsets, and both sides of the ledger.

Every log record ends as exactly one row here: an interaction, a feedback, a duplicate delivery or
a dead letter. (topic, partition, offset) is unique in each.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row
from tidemill.storage.types import ExactJson


class InteractionRow(Row):
    """One interaction and its ledger state; ids belong to their tenant.

    The key begins with the id, by which a batch of several tenants is looked up at once.
    """

    __tablename__ = "interactions"
    __table_args__ = (
        UniqueConstraint("partition", "log_offset"),
        Index("ix_interactions_state_closes_at", "state", "partition", "closes_at"),
        Index("ix_interactions_trajectory", "trajectory_id", "tenant"),
        Index("ix_interactions_subject", "tenant", "subject"),
        # The ledger by hour is counted from these alone, not from the documents.
        Index("ix_interactions_hours", "tenant", "state", "appended_at"),
    )

    interaction_id: Mapped[str] = mapped_column(primary_key=True)
    trajectory_id: Mapped[str]
    turn: Mapped[int]
    tenant: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    subject: Mapped[str | None]
    policy_version: Mapped[str]
    """Newest that produced a token."""
    arm: Mapped[str]
    state: Mapped[str]
    """open, rewarded, defaulted, malformed, excluded or erased."""
    excluded_reason: Mapped[str | None]
    document: Mapped[bytes | None] = mapped_column(LargeBinary)
    """The event's bytes as they came; None once erased."""
    partition: Mapped[int]
    log_offset: Mapped[int]
    appended_at: Mapped[datetime]
    closes_at: Mapped[datetime]
    closed_at: Mapped[datetime | None]


class FeedbackRow(Row):
    """One feedback and its ledger state; the row of an id is never replaced."""

    __tablename__ = "feedback"
    __table_args__ = (
        UniqueConstraint("partition", "log_offset"),
        Index("ix_feedback_target", "tenant", "target_id"),
        Index("ix_feedback_state_expires_at", "state", "partition", "expires_at"),
        Index("ix_feedback_rater", "tenant", "rater"),
        Index("ix_feedback_hours", "tenant", "state", "appended_at"),
    )

    tenant: Mapped[str] = mapped_column(primary_key=True)
    feedback_id: Mapped[str] = mapped_column(primary_key=True)
    trajectory_id: Mapped[str]
    interaction_id: Mapped[str | None]
    """None = the whole trajectory is meant."""
    target_id: Mapped[str]
    metric: Mapped[str]
    value: Mapped[Any | None] = mapped_column(ExactJson)
    source: Mapped[str]
    rater: Mapped[str | None]
    body_digest: Mapped[str]
    document: Mapped[bytes | None] = mapped_column(LargeBinary)
    """The event's bytes as they came; None once erased."""
    state: Mapped[str]
    """joined, superseded, pending, late, dead_lettered or erased."""
    partition: Mapped[int]
    log_offset: Mapped[int]
    appended_at: Mapped[datetime]
    expires_at: Mapped[datetime]
    """When a pending one becomes a dead letter."""


class DuplicateDeliveryRow(Row):
    """A record whose id was known with the same body: a delivery, not an id."""

    __tablename__ = "duplicate_deliveries"

    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    log_offset: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str | None]
    """None = written before it was kept."""
    record_id: Mapped[str] = mapped_column(index=True)
    """The interaction or feedback id."""
    appended_at: Mapped[datetime]


class DeadLetterRow(Row):
    """A record that cannot be used, kept whole, with its reason."""

    __tablename__ = "dead_letters"

    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    log_offset: Mapped[int] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(index=True)
    detail: Mapped[str]
    tenant: Mapped[str | None]
    record_id: Mapped[str | None] = mapped_column(index=True)
    """The feedback id where it could be read."""
    payload: Mapped[bytes] = mapped_column(LargeBinary)
    appended_at: Mapped[datetime]
    owns_record: Mapped[bool]
    """False when another row already stands for this log record (expired feedback)."""
    state: Mapped[str] = mapped_column(server_default="open", index=True)
    """open, replayed, returned or dropped."""
    closed_at: Mapped[datetime | None]
    closed_by: Mapped[str | None]
    closed_reason: Mapped[str | None]


class LogOffsetRow(Row):
    """How far a consumer group has come; moves in the transaction of the rows it caused."""

    __tablename__ = "log_offsets"

    consumer_group: Mapped[str] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    partition: Mapped[int] = mapped_column(primary_key=True)
    first_offset: Mapped[int]
    """Where the group began: the ledger counts from here."""
    next_offset: Mapped[int]
    """The first record not yet processed."""
    num_records: Mapped[int]
    """Records processed since `first_offset`; offsets may have gaps."""
    appended_until: Mapped[datetime | None]
    """Append time of the last processed record."""


class AcknowledgedCountRow(Row):
    """What one API process has acknowledged so far: never more than the log holds."""

    __tablename__ = "acknowledged_counts"

    process_id: Mapped[str] = mapped_column(primary_key=True)
    topic: Mapped[str] = mapped_column(primary_key=True)
    num_acknowledged: Mapped[int]
    updated_at: Mapped[datetime]
