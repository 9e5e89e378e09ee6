"""Rows of traffic and canaries; the traffic row is also the lock of all moves of one model."""

from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from tidemill.storage.tables import CanaryRow, TrafficRow


def lock_traffic(session: Session, *, model: str, tenant: str, now: datetime) -> TrafficRow:
    """Return the traffic row, locked until the transaction ends; make it at first use.

    PostgreSQL locks the row; on SQLite the transaction already holds the only write lock.
    """
    dialect = session.get_bind().dialect.name
    insert = sqlite.insert if dialect == "sqlite" else postgresql.insert
    values = {
        "model": model,
        "tenant": tenant,
        "challenger_share": 0.0,
        "salt": "",
        "revision": 0,
        "next_number": 1,
        "changed_at": now,
    }
    session.execute(insert(TrafficRow).values(values).on_conflict_do_nothing())
    query = (
        select(TrafficRow)
        .where(TrafficRow.model == model, TrafficRow.tenant == tenant)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.scalars(query).one()


def fetch_traffic(session: Session, *, model: str, tenant: str) -> TrafficRow | None:
    """Return the traffic row; None before the first move."""
    return session.get(TrafficRow, (model, tenant))


def insert_canary(session: Session, row: CanaryRow) -> None:
    """Add a canary."""
    session.add(row)
    session.flush()


def fetch_open_canary(session: Session, *, model: str, tenant: str) -> CanaryRow | None:
    """Return the canary that has not ended, if one runs."""
    query = (
        select(CanaryRow)
        .where(CanaryRow.model == model, CanaryRow.tenant == tenant, CanaryRow.ended_at.is_(None))
        .order_by(CanaryRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def fetch_canaries(
    session: Session, *, model: str, tenant: str, challenger: str | None = None
) -> list[CanaryRow]:
    """Return canaries in their order, all or those of one challenger."""
    query = select(CanaryRow).where(CanaryRow.model == model, CanaryRow.tenant == tenant)
    if challenger is not None:
        query = query.where(CanaryRow.challenger == challenger)
    return list(session.scalars(query.order_by(CanaryRow.id)))


def count_canaries(session: Session, *, model: str, tenant: str) -> int:
    """Return how many canaries were ever started."""
    query = (
        select(func.count())
        .select_from(CanaryRow)
        .where(CanaryRow.model == model, CanaryRow.tenant == tenant)
    )
    return session.scalar(query) or 0
