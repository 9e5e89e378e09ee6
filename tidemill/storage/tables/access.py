"""Who may call: API keys, hashed."""

from datetime import datetime
from typing import Any

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
