"""Rows of policy versions and of their moves."""

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from tidemill.contracts.lifecycle import Move
from tidemill.storage.tables import PolicyTransitionRow, PolicyVersionRow


@dataclass(frozen=True, slots=True)
class MirroredVersion:
    """A version as tracking shows it."""

    version: str
    revision: int
    tracking_run: str


def insert_policy_version(session: Session, row: PolicyVersionRow) -> None:
    """Add a version."""
    session.add(row)
    session.flush()


def fetch_policy_version(
    session: Session, version: str, *, model: str, tenant: str
) -> PolicyVersionRow | None:
    """Return one version, None if it is unknown."""
    return session.get(PolicyVersionRow, (version, model, tenant), populate_existing=True)


def fetch_policy_versions(
    session: Session,
    *,
    model: str,
    tenant: str,
    status: str | None = None,
    number: int | None = None,
) -> list[PolicyVersionRow]:
    """Return versions by number, lowest first; `status` and `number` narrow."""
    query = select(PolicyVersionRow).where(
        PolicyVersionRow.model == model, PolicyVersionRow.tenant == tenant
    )
    if status is not None:
        query = query.where(PolicyVersionRow.status == status)
    if number is not None:
        query = query.where(PolicyVersionRow.number == number)
    query = query.order_by(PolicyVersionRow.number).execution_options(populate_existing=True)
    return list(session.scalars(query))


def fetch_highest_number(session: Session, *, model: str, tenant: str) -> int:
    """Return the highest number of a version, 0 without one."""
    query = select(func.max(PolicyVersionRow.number)).where(
        PolicyVersionRow.model == model, PolicyVersionRow.tenant == tenant
    )
    return session.scalar(query) or 0


def insert_transition(session: Session, row: PolicyTransitionRow) -> None:
    """Add a move; ids grow in the order of the moves, since the caller holds the traffic lock."""
    session.add(row)
    session.flush()


def fetch_transitions(
    session: Session, *, model: str, tenant: str, version: str | None = None
) -> list[PolicyTransitionRow]:
    """Return moves in their order, of one version or of all."""
    query = select(PolicyTransitionRow).where(
        PolicyTransitionRow.model == model, PolicyTransitionRow.tenant == tenant
    )
    if version is not None:
        query = query.where(PolicyTransitionRow.version == version)
    return list(session.scalars(query.order_by(PolicyTransitionRow.id)))


def fetch_predecessor(session: Session, version: str, *, model: str, tenant: str) -> str | None:
    """Return the version that was champion before this one was promoted, None without one."""
    moves = fetch_transitions(session, model=model, tenant=tenant, version=version)
    promotions = [row.id for row in moves if row.move == Move.PROMOTE]
    if not promotions:
        return None
    # Moves happen under the traffic lock: nothing lies between the two moves of one promotion.
    query = (
        select(PolicyTransitionRow.version)
        .where(
            PolicyTransitionRow.model == model,
            PolicyTransitionRow.tenant == tenant,
            PolicyTransitionRow.move == Move.RETIRE,
            PolicyTransitionRow.id < promotions[-1],
        )
        .order_by(PolicyTransitionRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def fetch_unmirrored(session: Session, *, model: str, tenant: str) -> list[PolicyVersionRow]:
    """Return versions that changed since tracking last mirrored them, lowest number first."""
    query = (
        select(PolicyVersionRow)
        .where(
            PolicyVersionRow.model == model,
            PolicyVersionRow.tenant == tenant,
            PolicyVersionRow.revision > PolicyVersionRow.mirrored_revision,
        )
        .order_by(PolicyVersionRow.number)
    )
    return list(session.scalars(query))


def mark_mirrored(session: Session, record: MirroredVersion, *, model: str, tenant: str) -> None:
    """Note what tracking shows of a version."""
    row = fetch_policy_version(session, record.version, model=model, tenant=tenant)
    if row is not None:
        row.mirrored_revision = max(row.mirrored_revision, record.revision)
        row.tracking_run = record.tracking_run
