"""Rows of the gate's decisions; append-only."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemill.storage.tables import GateRunRow

OFFLINE = "offline"
CANARY = "canary"
CHAMPION = "champion"
STAGES = (OFFLINE, CANARY, CHAMPION)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRun:
    """One decision: what was said, why, and the figures that it can be computed from."""

    stage: str
    """offline, canary or champion."""
    verdict: str
    reasons: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)
    """JSON; finite numbers only."""


@dataclass(frozen=True, slots=True)
class StoredGateRun:
    """A decision with its version and time."""

    version: str
    run: GateRun
    at: datetime


def insert_gate_run(session: Session, stored: StoredGateRun, *, model: str, tenant: str) -> None:
    """Add a decision."""
    run = stored.run
    session.add(
        GateRunRow(
            version=stored.version,
            model=model,
            tenant=tenant,
            stage=run.stage,
            verdict=run.verdict,
            reasons=list(run.reasons),
            evidence=run.evidence,
            at=stored.at,
        )
    )


def fetch_gate_runs(
    session: Session, *, model: str, tenant: str, version: str | None = None
) -> list[StoredGateRun]:
    """Return decisions in their order, of one version or of all."""
    query = select(GateRunRow).where(GateRunRow.model == model, GateRunRow.tenant == tenant)
    if version is not None:
        query = query.where(GateRunRow.version == version)
    return [_stored(row) for row in session.scalars(query.order_by(GateRunRow.id))]


def _stored(row: GateRunRow) -> StoredGateRun:
    run = GateRun(
        stage=row.stage,
        verdict=row.verdict,
        reasons=tuple(str(reason) for reason in row.reasons),
        evidence=row.evidence,
    )
    return StoredGateRun(row.version, run, row.at)
