"""Interactions in SQL: written when read from the log, closed once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, Table, bindparam, or_, select, update
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


_IS_ONE_OF = is_any_pair(InteractionRow.tenant, InteractionRow.interaction_id)

_KNOWN_DOCUMENTS = select(
    InteractionRow.tenant, InteractionRow.interaction_id, InteractionRow.document
).where(_IS_ONE_OF)

_SERVED = select(
    InteractionRow.tenant,
    InteractionRow.interaction_id,
    InteractionRow.trajectory_id,
    InteractionRow.appended_at,
)
_SERVED_AT = _SERVED.where(_IS_ONE_OF)
_SERVED_AT_OF_TRAJECTORY = _SERVED.where(
    is_any_pair(InteractionRow.tenant, InteractionRow.trajectory_id)
)

_CLOSABLE = select(
    InteractionRow.tenant,
    InteractionRow.interaction_id,
    InteractionRow.trajectory_id,
    InteractionRow.document,
    InteractionRow.appended_at,
)
_OPEN = (
    _CLOSABLE.where(_IS_ONE_OF, unsearched(InteractionRow.state) == OPEN)
    .order_by(InteractionRow.interaction_id, InteractionRow.tenant)
    # As `fetch_closable` does.
    .with_for_update()
)
_OPEN_UNJUDGED = _OPEN.where(~awaits_judgement())

_CLOSE = (
    update(cast("Table", InteractionRow.__table__))
    .where(_IS_ONE_OF, unsearched(InteractionRow.state) == OPEN)
    .values(
        state=bindparam("end"), excluded_reason=bindparam("reason"), closed_at=bindparam("moment")
    )
)


class Closable(NamedTuple):
    """An open interaction, as far as closing needs it."""

    tenant: str
    interaction_id: str
    trajectory_id: str
    document: bytes | None
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
    found = session.connection().execute(_KNOWN_DOCUMENTS, {"pairs": keys})
    return {(tenant, one): document for tenant, one, document in found}


def fetch_served_at(
    session: Session,
    *,
    interactions: Collection[InteractionKey],
    trajectories: Collection[TrajectoryKey],
) -> list[ServedAt]:
    """Return the append times of interactions, found by their own id or by their trajectory's."""
    # One after the other: for both at once a database reads the whole table.
    asked = ((_SERVED_AT, interactions), (_SERVED_AT_OF_TRAJECTORY, trajectories))
    found = {
        ServedAt(*values)
        for query, keys in asked
        if keys
        for values in session.connection().execute(query, {"pairs": keys})
    }
    return list(found)


def fetch_closable(
    session: Session,
    *,
    partitions: Mapping[int, datetime],
    limit: int,
    is_judged: bool = False,
) -> list[Closable]:
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
        _CLOSABLE.where(InteractionRow.state == OPEN, or_(*due), *_not_awaiting(is_judged))
        .order_by(InteractionRow.closes_at, InteractionRow.interaction_id, InteractionRow.tenant)
        .limit(limit)
        # Before their feedback is read: late feedback stored by then is seen, and whoever stores
        # some afterwards waits and finds them closed.
        .with_for_update()
    )
    return [Closable(*row) for row in session.connection().execute(query)]


def fetch_open(
    session: Session, keys: Collection[InteractionKey], *, is_judged: bool = False
) -> list[Closable]:
    """Return those of some interactions that are open, and lock them.

    Args:
        session: where to read.
        keys: which.
        is_judged: whether judges are declared; what waits for one is left out.
    """
    query = _OPEN_UNJUDGED if is_judged else _OPEN
    return [Closable(*row) for row in session.connection().execute(query, {"pairs": keys})]


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
    by_end: dict[tuple[str, str | None], list[InteractionKey]] = {}
    for end in ends:
        by_end.setdefault((end.state, end.reason), []).append(end.key)
    for (state, reason), keys in by_end.items():
        values = {"pairs": keys, "end": state, "reason": reason, "moment": closed_at}
        closed = session.connection().execute(_CLOSE, values)
        if closed.rowcount != len(keys):
            raise FencedError("another worker closed an interaction of this batch; read again")


def fetch_interaction(
    session: Session, *, tenant: str, interaction_id: str
) -> InteractionRow | None:
    """Return one interaction of a tenant; None = unknown."""
    return session.get(InteractionRow, (interaction_id, tenant))


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
