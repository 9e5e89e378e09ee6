"""Whose feedback has no effect for now, who said so, and when that ended."""

from datetime import datetime

from sqlalchemy import Index, text
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row


class QuarantineRow(Row):
    """One stay in quarantine; rows are never deleted, so that they are the audit too."""

    __tablename__ = "quarantine"
    __table_args__ = (
        Index(
            "ix_quarantine_active",
            "tenant",
            "kind",
            "who",
            unique=True,
            sqlite_where=text("removed_at IS NULL"),
            postgresql_where=text("removed_at IS NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    kind: Mapped[str]
    """rater, subject or tenant."""
    who: Mapped[str]
    """Keyed hash of the rater or subject; of a tenant its own name."""
    reason: Mapped[str]
    added_at: Mapped[datetime]
    added_by: Mapped[str]
    """Name of the system's user who ran the command."""
    removed_at: Mapped[datetime | None]
    """None = it lasts."""
    removed_by: Mapped[str | None]
    removed_reason: Mapped[str | None]
