"""Interactions in SQL: written when read from the log, closed once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from tidemill.contracts.events import InteractionServed
from tidemill.errors import FencedError
from tidemill.storage.bulk import insert_rows
from tidemill.storage.judgements import awaits_judgement
from tidemill.storage.membership import is_any_pair, unsearched
from tidemill.storage.tables import InteractionRow

OPEN = "open"

InteractionKey = tuple[str, str]
"""Tenant and interaction id."""

TrajectoryKey = tuple[str, str]
"""Tenant and trajectory id."""


class NewInteraction(NamedTuple):
    """An interaction and where it lies in the log."""

    event: InteractionServed
    document: bytes
    partition: int
    offset: int
    appended_at: datetime
    closes_at: datetime


class ServedAt(NamedTuple):
    """When an interaction was appended: what windows are counted from."""

    tenant: str
    interaction_id: str
    trajectory_id: str
    appended_at: datetime


@dataclass(frozen=True, slots=True)
class ClosedAs:
    """The end of one interaction."""

    key: InteractionKey
    state: str
    reason: str | None


def insert_interactions(session: Session, interactions: Sequence[NewInteraction]) -> None:
    """Add open interactions in one statement."""
    insert_rows(session, InteractionRow, [_values(new) for new in interactions])


def fetch_known_documents(
    session: Session, keys: Collection[InteractionKey]
) -> dict[InteractionKey, bytes | None]:
    """Return the stored bytes of those ids that are known to their tenant; None = erased."""
    if not keys:
        return {}
    row = InteractionRow
    query = select(row.tenant, row.interaction_id, row.document).where(
        is_any_pair(row.tenant, row.interaction_id, keys)
    )
    return {(tenant, one): document for tenant, one, document in session.execute(query)}


def fetch_served_at(
    session: Session,
    *,
    interactions: Collection[InteractionKey],
    trajectories: Collection[TrajectoryKey],
) -> list[ServedAt]:
    """Return the append times of interactions, found by their own id or by their trajectory's."""
    row = InteractionRow
    query = select(row.tenant, row.interaction_id, row.trajectory_id, row.appended_at)
    # One after the other: for both at once a database reads the whole table.
    asked = ((row.interaction_id, interactions), (row.trajectory_id, trajectories))
    found = {
        ServedAt(*values)
        for column, keys in asked
        if keys
        for values in session.execute(query.where(is_any_pair(row.tenant, column, keys)))
    }
    return list(found)


def fetch_closable(
    session: Session,
    *,
    partitions: Mapping[int, datetime],
    limit: int,
    is_judged: bool = False,
) -> list[InteractionRow]:
    """Return open interactions whose windows are over, the longest over first, and lock them.

    Args:
        session: where to read.
        partitions: for each partition, the moment up to which it may be closed.
        limit: at most so many.
        is_judged: whether judges are declared; what waits for one is left out.
    """
    due = [
        (InteractionRow.partition == partition) & (InteractionRow.closes_at <= until)
        for partition, until in sorted(partitions.items())
    ]
    if not due:
        return []
    query = (
        select(InteractionRow)
        .where(InteractionRow.state == OPEN, or_(*due), *_not_awaiting(is_judged))
        .order_by(InteractionRow.closes_at, InteractionRow.interaction_id, InteractionRow.tenant)
        .limit(limit)
        # Before their feedback is read: late feedback stored by then is seen, and whoever stores
        # some afterwards waits and finds them closed.
        .with_for_update()
    )
    return list(session.scalars(query))


def fetch_open(
    session: Session, keys: Collection[InteractionKey], *, is_judged: bool = False
) -> list[InteractionRow]:
    """Return those of some interactions that are open, and lock them.

    Args:
        session: where to read.
        keys: which.
        is_judged: whether judges are declared; what waits for one is left out.
    """
    query = (
        select(InteractionRow)
        .where(
            is_any_pair(InteractionRow.tenant, InteractionRow.interaction_id, keys),
            unsearched(InteractionRow.state) == OPEN,
            *_not_awaiting(is_judged),
        )
        .order_by(InteractionRow.interaction_id, InteractionRow.tenant)
        # As above.
        .with_for_update()
    )
    return list(session.scalars(query))


def fetch_partitions_due(session: Session, *, until: datetime, is_judged: bool = False) -> set[int]:
    """Return the partitions that hold an interaction that `fetch_closable` would return."""
    query = (
        select(InteractionRow.partition)
        .where(
            InteractionRow.state == OPEN,
            InteractionRow.closes_at <= until,
            *_not_awaiting(is_judged),
        )
        .distinct()
    )
    return set(session.scalars(query))


def mark_closed(session: Session, ends: Sequence[ClosedAs], *, closed_at: datetime) -> None:
    """Close open interactions.

    Raises:
        FencedError: one of them was closed by somebody else.
    """
    row = InteractionRow
    by_end: dict[tuple[str, str | None], list[InteractionKey]] = {}
    for end in ends:
        by_end.setdefault((end.state, end.reason), []).append(end.key)
    for (state, reason), keys in by_end.items():
        query = (
            update(row)
            .where(is_any_pair(row.tenant, row.interaction_id, keys), unsearched(row.state) == OPEN)
            .values(state=state, excluded_reason=reason, closed_at=closed_at)
            .returning(row.interaction_id)
            .execution_options(synchronize_session=False)
        )
        if len(session.scalars(query).all()) != len(keys):
            raise FencedError("another worker closed an interaction of this batch; read again")


def fetch_interaction(
    session: Session, *, tenant: str, interaction_id: str
) -> InteractionRow | None:
    """Return one interaction of a tenant; None = unknown."""
    return session.get(InteractionRow, (interaction_id, tenant))


def fetch_interaction_counts(session: Session) -> dict[str, int]:
    """Return how many interactions are in each state."""
    query = select(InteractionRow.state, func.count()).group_by(InteractionRow.state)
    return dict(session.execute(query).all())


def fetch_excluded_counts(session: Session) -> dict[str, int]:
    """Return how many interactions were excluded for each reason."""
    query = (
        select(InteractionRow.excluded_reason, func.count())
        .where(InteractionRow.excluded_reason.is_not(None))
        .group_by(InteractionRow.excluded_reason)
    )
    return {str(reason): count for reason, count in session.execute(query)}


def _not_awaiting(is_judged: bool) -> tuple[ColumnElement[bool], ...]:
    return (~awaits_judgement(),) if is_judged else ()


def _values(new: NewInteraction) -> dict[str, Any]:
    event = new.event
    return {
        "interaction_id": event.interaction_id,
        "trajectory_id": event.trajectory_id,
        "turn": event.turn,
        "tenant": event.tenant,
        "model": event.model,
        "subject": event.subject,
        "policy_version": event.newest_policy_version,
        "arm": event.arm.value,
        "state": OPEN,
        "excluded_reason": None,
        "document": new.document,
        "partition": new.partition,
        "log_offset": new.offset,
        "appended_at": new.appended_at,
        "closes_at": new.closes_at,
        "closed_at": None,
    }
