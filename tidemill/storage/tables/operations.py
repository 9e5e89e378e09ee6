"""What operators look at: which parts are alive, and which version each replica serves."""

from datetime import datetime
from typing import Any

from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row


class HeartbeatRow(Row):
    """The last sign of life of one part."""

    __tablename__ = "heartbeats"

    part: Mapped[str] = mapped_column(primary_key=True)
    """serving, api, ingest, learner, gate, backfill; with `#n` for replicas."""
    pid: Mapped[int]
    ready: Mapped[bool]
    detail: Mapped[str]
    """What is missing when not ready, else what it does."""
    counters: Mapped[dict[str, Any]]
    started_at: Mapped[datetime]
    at: Mapped[datetime]


class ReplicaVersionRow(Row):
    """One swap on one replica: what it serves since when, and what the swap cost."""

    __tablename__ = "replica_versions"

    id: Mapped[int] = mapped_column(primary_key=True)
    replica: Mapped[str]
    model: Mapped[str]
    tenant: Mapped[str]
    version: Mapped[str]
    role: Mapped[str]
    """champion or challenger."""
    outcome: Mapped[str]
    """flipped or refused."""
    detail: Mapped[str]
    in_flight: Mapped[int]
    """Requests running at the flip."""
    pause_ms: Mapped[float]
    """Longest time during the swap in which no new request could start."""
    load_ms: Mapped[float]
    at: Mapped[datetime]
