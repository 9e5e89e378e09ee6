"""What the registry takes and gives: plain records, apart from the rows behind them."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import Move, PolicyStatus, Verdict
from tidemill.storage.tables import (
    CanaryRow,
    PolicyTransitionRow,
    PolicyVersionRow,
    TrafficRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRecord:
    """One policy version; to register one, the fields up to `provenance` are enough."""

    version: str
    """`v<number>-<first 12 hex of digest>`."""
    digest: str
    """Whole digest of its content (hexadecimal)."""
    base_digest: str
    parent: str | None = None
    """The version it was trained from; None = the base."""
    step: int = 0
    """Optimiser steps in its lineage; staleness is counted in these."""
    snapshot: str | None = None
    """Folder in the snapshot store; None = the base itself."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """How it was made: origin, experience range, reward-spec hash, code version, metrics."""
    status: PolicyStatus = PolicyStatus.CANDIDATE
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    status_at: datetime | None = None
    """When the status last changed; None = not registered yet."""
    revision: int = 1
    """Grows with each change and each decision of the gate."""
    tracking_run: str | None = None
    """The MLflow run that shows it."""

    @property
    def number(self) -> int:
        """The number in the version."""
        return PolicyVersion.parse(self.version).number

    @classmethod
    def of_row(cls, row: PolicyVersionRow) -> "PolicyRecord":
        """Read a row."""
        return cls(
            version=row.version,
            digest=row.digest,
            base_digest=row.base_digest,
            parent=row.parent,
            step=row.step,
            snapshot=row.snapshot,
            provenance=row.provenance,
            status=PolicyStatus(row.status),
            created_at=row.created_at,
            status_at=row.status_at,
            revision=row.revision,
            tracking_run=row.tracking_run,
        )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who serves whom."""

    champion: str | None = None
    challenger: str | None = None
    challenger_share: float = 0.0
    """Share of subjects that the challenger serves, 0 to 1."""
    salt: str = ""
    """Of the sticky assignment; new for each canary."""
    revision: int = 0
    """Grows with each change."""

    @classmethod
    def of_row(cls, row: TrafficRow | None) -> "Traffic":
        """Read a row; None = nobody serves yet."""
        if row is None:
            return cls()
        return cls(row.champion, row.challenger, row.challenger_share, row.salt, row.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One live comparison of a challenger with the champion."""

    challenger: str
    champion: str
    number: int
    """Position in the stream of canaries, from 1."""
    alpha: float
    """What the alpha ledger gave it."""
    share: float
    started_at: datetime
    ended_at: datetime | None
    verdict: Verdict | None
    log_e_value: float | None
    """Natural log of the promotion e-value when it ended."""

    @classmethod
    def of_row(cls, row: CanaryRow) -> "Canary":
        """Read a row."""
        return cls(
            challenger=row.challenger,
            champion=row.champion,
            number=row.number,
            alpha=row.alpha,
            share=row.share,
            started_at=row.started_at,
            ended_at=row.ended_at,
            verdict=None if row.verdict is None else Verdict(row.verdict),
            log_e_value=row.log_e_value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One move of one version."""

    version: str
    move: Move
    from_status: PolicyStatus
    to_status: PolicyStatus
    reason: str
    actor: str
    """gate, operator or backfill."""
    at: datetime

    @classmethod
    def of_row(cls, row: PolicyTransitionRow) -> "Transition":
        """Read a row."""
        return cls(
            version=row.version,
            move=Move(row.move),
            from_status=PolicyStatus(row.from_status),
            to_status=PolicyStatus(row.to_status),
            reason=row.reason,
            actor=row.actor,
            at=row.at,
        )
