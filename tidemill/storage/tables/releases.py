"""What releases keep: policy versions and their moves, traffic, canaries, the gate's decisions."""

from datetime import datetime
from typing import Any

from sqlalchemy import Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row


class PolicyVersionRow(Row):
    """One policy version: immutable but for its status."""

    __tablename__ = "policy_versions"
    __table_args__ = (
        UniqueConstraint("model", "tenant", "number"),
        Index(
            "uq_policy_versions_champion",
            "model",
            "tenant",
            unique=True,
            sqlite_where=text("status = 'champion'"),
            postgresql_where=text("status = 'champion'"),
        ),
    )

    version: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int]
    parent: Mapped[str | None]
    status: Mapped[str]
    step: Mapped[int]
    """Optimiser steps in its lineage; staleness is counted in these."""
    digest: Mapped[str]
    snapshot: Mapped[str | None]
    """Folder name in the snapshot store; None = the base itself (v0)."""
    base_digest: Mapped[str]
    provenance: Mapped[dict[str, Any]]
    """How it was made: origin, experience range, reward-spec hash, code version, metrics."""
    created_at: Mapped[datetime]
    status_at: Mapped[datetime]
    revision: Mapped[int]
    """Grows with each change; the tracking mirror follows it."""
    mirrored_revision: Mapped[int]
    tracking_run: Mapped[str | None]


class PolicyTransitionRow(Row):
    """One move in the lifecycle, with who asked and why; append-only."""

    __tablename__ = "policy_transitions"
    __table_args__ = (Index("ix_policy_transitions_version", "model", "tenant", "version"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[str]
    model: Mapped[str]
    tenant: Mapped[str]
    move: Mapped[str]
    from_status: Mapped[str]
    to_status: Mapped[str]
    reason: Mapped[str]
    actor: Mapped[str]
    """gate, operator or backfill."""
    at: Mapped[datetime]


class TrafficRow(Row):
    """Who serves whom: the two pointers that serving follows."""

    __tablename__ = "traffic"

    model: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(primary_key=True)
    champion: Mapped[str | None]
    challenger: Mapped[str | None]
    challenger_share: Mapped[float]
    """Share of subjects that the challenger serves, 0 to 1."""
    salt: Mapped[str]
    """Of the sticky assignment; new for each canary, so arms do not carry over."""
    revision: Mapped[int]
    next_number: Mapped[int]
    """Number of the next version: taken once, also by one that is never registered."""
    changed_at: Mapped[datetime]


class CanaryRow(Row):
    """One live comparison of a challenger with the champion, and the alpha it was given."""

    __tablename__ = "canaries"

    id: Mapped[int] = mapped_column(primary_key=True)
    model: Mapped[str]
    tenant: Mapped[str]
    challenger: Mapped[str]
    champion: Mapped[str]
    number: Mapped[int]
    """Position in the stream of releases, from 1: what the alpha ledger counts."""
    alpha: Mapped[float]
    share: Mapped[float]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    verdict: Mapped[str | None]
    log_e_value: Mapped[float | None]
    """Natural log of the promotion e-value when it ended."""


class GateRunRow(Row):
    """One look of the gate: verdict, reasons and the evidence that they can be computed from."""

    __tablename__ = "gate_runs"
    __table_args__ = (Index("ix_gate_runs_version", "model", "tenant", "version"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    version: Mapped[str]
    model: Mapped[str]
    tenant: Mapped[str]
    stage: Mapped[str]
    """offline, canary or champion."""
    verdict: Mapped[str]
    reasons: Mapped[list[Any]]
    evidence: Mapped[dict[str, Any]]
    at: Mapped[datetime]
