"""What judges were asked and what they said."""

from datetime import datetime

from sqlalchemy import JSON, Index
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row


class JudgementRow(Row):
    """One item of one judge for one interaction; numbers only, no word of it.

    A finished row is never changed: a replay reads it instead of asking again.
    """

    __tablename__ = "judgements"
    __table_args__ = (
        Index("ix_judgements_state_due_at", "state", "due_at"),
        Index("ix_judgements_digest", "digest"),
    )

    interaction_id: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    """Of what decides the answer: tenant, content, rubric item, model, votes."""
    tenant: Mapped[str | None]
    """Whose interaction; None = written by a release that did not name it."""
    judge: Mapped[str]
    item: Mapped[str]
    state: Mapped[str]
    """wanted, answered or failed."""
    scores: Mapped[list[float]] = mapped_column(JSON)
    """The votes so far, each in [0, 1]."""
    wanted_at: Mapped[datetime]
    gives_up_at: Mapped[datetime]
    """When a wanted one becomes a failed one."""
    due_at: Mapped[datetime]
    """When the next vote may be asked for; while somebody asks, when they count as dead."""
    claim: Mapped[str | None]
    """Who asks; None = nobody."""
    num_failures: Mapped[int]
    """In a row, since the last vote."""
    detail: Mapped[str | None]
    """What went wrong last."""
    finished_at: Mapped[datetime | None]
