"""Who may call, who said so, and who is to be forgotten."""

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from tidemill.storage.tables.base import Row


class ApiKeyRow(Row):
    """One key: a public id to find it by, and the hash of its secret."""

    __tablename__ = "api_keys"

    public_id: Mapped[str] = mapped_column(primary_key=True)
    """12 characters."""
    secret_hash: Mapped[str]
    """SHA-256 of the secret (hexadecimal); 256 random bits need no slow hash."""
    tenant: Mapped[str]
    scopes: Mapped[list[Any]]
    label: Mapped[str]
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class KeyEventRow(Row):
    """One creation or revocation of a key; append-only."""

    __tablename__ = "key_events"

    id: Mapped[int] = mapped_column(primary_key=True)
    public_id: Mapped[str]
    tenant: Mapped[str]
    action: Mapped[str]
    """created or revoked."""
    scopes: Mapped[list[Any]]
    label: Mapped[str]
    actor: Mapped[str]
    """Name of the system's user who ran the command."""
    at: Mapped[datetime]


class ErasureRequestRow(Row):
    """One request to erase what is held of a subject."""

    __tablename__ = "erasure_requests"
    __table_args__ = (UniqueConstraint("tenant", "subject"),)

    request_id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    subject: Mapped[str]
    """Keyed hash, as in interactions."""
    state: Mapped[str]
    """queued."""
    requested_by: Mapped[str]
    """Public id of the key that asked; empty where no key is needed."""
    requested_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
