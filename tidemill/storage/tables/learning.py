"""What learning keeps: experiences, optimiser steps, and which step used which experience."""

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row
from tidemill.storage.types import PackedFloats, PackedIds


class ExperienceRow(Row):
    """One experience (`contracts/experience.py`) and how often it may still be used.

    Keyed as interactions are: by the id first, then by its tenant.
    """

    __tablename__ = "experiences"
    __table_args__ = (
        Index("ix_experiences_queue", "model", "tenant", "state", "closed_at"),
        Index("ix_experiences_evidence", "newest_policy_version", "arm"),
    )

    experience_id: Mapped[str] = mapped_column(primary_key=True)
    origin: Mapped[str]
    tenant: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    trajectory_id: Mapped[str]
    turn: Mapped[int]
    subject: Mapped[str | None]
    context: Mapped[str] = mapped_column(index=True)
    group_id: Mapped[str | None]
    oldest_policy_version: Mapped[str]
    newest_policy_version: Mapped[str]
    arm: Mapped[str]
    assignment_probability: Mapped[float]
    prompt_ids: Mapped[tuple[int, ...]] = mapped_column(PackedIds)
    completion_ids: Mapped[tuple[int, ...]] = mapped_column(PackedIds)
    behaviour_logprobs: Mapped[tuple[float, ...] | None] = mapped_column(PackedFloats)
    kept_mass: Mapped[tuple[float, ...] | None] = mapped_column(PackedFloats)
    temperature: Mapped[float]
    is_truncated: Mapped[bool]
    finish_reason: Mapped[str]
    outcome: Mapped[str]
    reward: Mapped[float]
    components: Mapped[dict[str, Any]]
    reward_spec_hash: Mapped[str]
    digest: Mapped[str]
    closed_at: Mapped[datetime]
    """When the result was written (wall clock); not part of the digest."""
    state: Mapped[str]
    """ready, used (all declared uses done) or dropped (with a reason)."""
    dropped_reason: Mapped[str | None]
    """stale, no_logprobs, greedy, ..."""
    num_uses: Mapped[int]


class ExperienceRevisionRow(Row):
    """What one late feedback makes of an experience; the experience itself never changes."""

    __tablename__ = "experience_revisions"
    __table_args__ = (Index("ix_experience_revisions_taken_at", "tenant", "taken_at"),)

    tenant: Mapped[str] = mapped_column(primary_key=True)
    experience_id: Mapped[str] = mapped_column(primary_key=True)
    feedback_id: Mapped[str] = mapped_column(primary_key=True)
    """The late feedback."""
    outcome: Mapped[str]
    """rewarded, or still defaulted."""
    reward: Mapped[float]
    """With this feedback and all before it in the log."""
    components: Mapped[dict[str, Any]]
    reward_spec_hash: Mapped[str]
    partition: Mapped[int]
    log_offset: Mapped[int]
    """Where the late feedback lies."""
    appended_at: Mapped[datetime]
    taken_at: Mapped[datetime | None]
    """When a learner took it up; None = it has not."""
    taken_by: Mapped[str | None]
    """`<model>/<tenant>` of that learner."""


class LearnerStepRow(Row):
    """One optimiser step of a learner; its checkpoint was durable before this row."""

    __tablename__ = "learner_steps"

    learner: Mapped[str] = mapped_column(primary_key=True)
    """`<model>/<tenant>`."""
    serial: Mapped[int] = mapped_column(primary_key=True)
    """Counts steps for good; `step` returns to the champion's after a reset."""
    step: Mapped[int]
    lineage: Mapped[int]
    """Counts resets to a champion."""
    origin: Mapped[str]
    """live, simulated or reset."""
    parent_version: Mapped[str | None]
    checkpoint: Mapped[str | None]
    """File name of the checkpoint after this step; None = an older one is still valid."""
    checkpoint_digest: Mapped[str | None]
    metrics: Mapped[dict[str, Any]]
    finished_at: Mapped[datetime]


class ExperienceUseRow(Row):
    """Lineage: this step used that experience, which is of the learner's tenant."""

    __tablename__ = "experience_uses"
    __table_args__ = (
        ForeignKeyConstraint(
            ["experience_id", "tenant"], ["experiences.experience_id", "experiences.tenant"]
        ),
    )

    experience_id: Mapped[str] = mapped_column(primary_key=True)
    learner: Mapped[str] = mapped_column(primary_key=True)
    serial: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str | None]
    """None = written by a release that did not name it."""
