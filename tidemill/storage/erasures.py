"""Requests to erase what is held of a subject: queued here, one row a subject."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tidemill.contracts.ids import new_erasure_id
from tidemill.storage.tables import ErasureRequestRow

QUEUED = "queued"


def queue_erasure(
    session: Session, *, tenant: str, subject: str, requested_by: str, now: datetime
) -> ErasureRequestRow:
    """Queue the erasure of a subject, once: a repeat returns the first request.

    Args:
        session: where to write.
        tenant: whose subject.
        subject: keyed hash.
        requested_by: public id of the key that asked.
        now: when.
    """
    insert = sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert
    session.execute(
        insert(ErasureRequestRow)
        .values(
            request_id=new_erasure_id(),
            tenant=tenant,
            subject=subject,
            state=QUEUED,
            requested_by=requested_by,
            requested_at=now,
            finished_at=None,
        )
        .on_conflict_do_nothing(index_elements=["tenant", "subject"])
    )
    query = select(ErasureRequestRow).where(
        ErasureRequestRow.tenant == tenant, ErasureRequestRow.subject == subject
    )
    return session.scalars(query).one()


def fetch_erasure(session: Session, *, tenant: str, request_id: str) -> ErasureRequestRow | None:
    """Return one request of a tenant; None = unknown."""
    row = session.get(ErasureRequestRow, request_id)
    return row if row is not None and row.tenant == tenant else None
