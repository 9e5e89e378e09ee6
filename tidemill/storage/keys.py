"""API keys: made once, shown once, kept as a hash.

A key reads `tdm_<public id>_<secret>`; the public id finds the row, the secret proves it.
"""

import hashlib
import hmac
import secrets
import string
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from tidemill.errors import ConfigurationError
from tidemill.storage.operators import current_operator
from tidemill.storage.tables import ApiKeyRow, KeyEventRow
from tidemill.tenants import check_tenant

MAX_KEY_LENGTH = 128
"""Characters; ours have half as many. What is longer is no key: it is neither asked for nor
remembered, so that whoever has none cannot fill a memory."""

_PREFIX = "tdm"
_PUBLIC_CHARACTERS = string.ascii_lowercase + string.digits
_PUBLIC_LENGTH = 12


class Scope(StrEnum):
    """What a key may do; the values are the stored strings."""

    FEEDBACK_WRITE = "feedback:write"
    INTERACTIONS_WRITE = "interactions:write"
    COMPLETIONS = "completions"
    READ = "read"
    ADMIN = "admin"
    """Everything."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A caller that proved itself."""

    public_id: str
    tenant: str
    scopes: frozenset[str]

    def allows(self, scope: str) -> bool:
        """Tell whether the key has a scope; `admin` has all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


def create_key(
    session: Session, *, tenant: str, scopes: Collection[str], label: str, now: datetime
) -> tuple[str, str]:
    """Make a key.

    Returns:
        Its public id, and its whole text, which cannot be shown again.

    Raises:
        ConfigurationError: no scope, an unknown one, or a tenant that no event could name.
    """
    try:
        check_tenant(tenant)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    unknown = sorted(set(scopes) - set(Scope))
    if unknown or not scopes:
        raise ConfigurationError(
            f"unknown scopes {unknown}; give at least one of: {', '.join(Scope)}"
        )
    public_id = "".join(secrets.choice(_PUBLIC_CHARACTERS) for _ in range(_PUBLIC_LENGTH))
    secret = secrets.token_urlsafe(32)
    row = ApiKeyRow(
        public_id=public_id,
        secret_hash=_hash(secret),
        tenant=tenant,
        scopes=sorted(set(scopes)),
        label=label,
        created_at=now,
        revoked_at=None,
    )
    session.add_all([row, _event(row, "created", now)])
    return public_id, f"{_PREFIX}_{public_id}_{secret}"


def authenticate(session: Session, text: str) -> ApiKey | None:
    """Return who a key belongs to; None = unknown, revoked or not a key at all."""
    prefix, _, rest = text.partition("_")
    public_id, _, secret = rest.partition("_")
    if prefix != _PREFIX or len(public_id) != _PUBLIC_LENGTH or not public_id.isalnum():
        return None
    row = session.get(ApiKeyRow, public_id)
    if row is None or row.revoked_at is not None:
        return None
    if not hmac.compare_digest(row.secret_hash, _hash(secret)):
        return None
    return ApiKey(row.public_id, row.tenant, frozenset(map(str, row.scopes)))


def fetch_keys(session: Session, *, tenant: str | None = None) -> list[ApiKeyRow]:
    """Return all keys, oldest first, of one tenant or of all."""
    query = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.public_id)
    if tenant is not None:
        query = query.where(ApiKeyRow.tenant == tenant)
    return list(session.scalars(query))


def revoke_key(session: Session, public_id: str, *, now: datetime) -> bool:
    """Revoke a key for good; False = no such key, or revoked before."""
    row = session.get(ApiKeyRow, public_id, with_for_update=True)
    if row is None or row.revoked_at is not None:
        return False
    row.revoked_at = now
    session.add(_event(row, "revoked", now))
    return True


def fetch_key_events(session: Session, *, public_id: str | None = None) -> list[KeyEventRow]:
    """Return who made and revoked keys, oldest first, of one key or of all."""
    query = select(KeyEventRow).order_by(KeyEventRow.id)
    if public_id is not None:
        query = query.where(KeyEventRow.public_id == public_id)
    return list(session.scalars(query))


def _event(row: ApiKeyRow, action: str, now: datetime) -> KeyEventRow:
    return KeyEventRow(
        public_id=row.public_id,
        tenant=row.tenant,
        action=action,
        scopes=list(row.scopes),
        label=row.label,
        actor=current_operator(),
        at=now,
    )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
