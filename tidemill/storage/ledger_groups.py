"""States by hour of appending and by tenant, counted by the database from an index alone."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import String, func, literal_column, select
from sqlalchemy.orm import Session

from tidemill.storage.tables import DeadLetterRow, FeedbackRow, InteractionRow


class GroupBy(StrEnum):
    """What the states are counted by."""

    HOUR = "hour"
    """In which the record was appended to the log, in UTC."""
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCount:
    """How many of one kind are in one state, within one group."""

    kind: str
    """interactions, feedback or dead_letters."""
    state: str
    """Of a dead letter: open, replayed, returned or dropped."""
    number: int
    hour: datetime | None = None
    """Its beginning; None = not asked for."""
    tenant: str | None = None
    """None = not asked for, or (of a dead letter) not known."""


@dataclass(frozen=True, slots=True)
class _Which:
    by: frozenset[GroupBy]
    since: datetime | None
    tenant: str | None


_TABLES: tuple[tuple[str, Any], ...] = (
    ("interactions", InteractionRow),
    ("feedback", FeedbackRow),
    ("dead_letters", DeadLetterRow),
)


def fetch_state_counts(
    session: Session,
    by: Collection[GroupBy],
    *,
    since: datetime | None = None,
    tenant: str | None = None,
) -> list[StateCount]:
    """Return the states of everything, by group and in the groups' order.

    Args:
        session: where to read.
        by: what to group by.
        since: only what was appended to the log then or later.
        tenant: only this tenant's; None = everybody's.
    """
    which = _Which(frozenset(by), since, tenant)
    counts = [one for kind, table in _TABLES for one in _count(session, kind, table, which)]
    counts.sort(key=lambda one: (one.hour or datetime.min.replace(tzinfo=UTC), one.tenant or ""))
    return counts


def _count(session: Session, kind: str, table: Any, which: _Which) -> list[StateCount]:
    columns: dict[GroupBy, Any] = {
        GroupBy.HOUR: _hour(session, table.appended_at),
        GroupBy.TENANT: table.tenant,
    }
    asked = [columns[one].label(one.value) for one in GroupBy if one in which.by]
    query = select(*asked, table.state, func.count().label("number")).group_by(*asked, table.state)
    if which.since is not None:
        query = query.where(table.appended_at >= which.since)
    if which.tenant is not None:
        query = query.where(table.tenant == which.tenant)
    return [
        StateCount(
            kind=kind,
            hour=_moment(row.get("hour")),
            tenant=row.get("tenant"),
            state=row["state"],
            number=row["number"],
        )
        for row in session.execute(query).mappings()
    ]


def _hour(session: Session, column: Any) -> Any:
    # Literals, not parameters: PostgreSQL takes two parameters for two expressions.
    if session.get_bind().dialect.name == "sqlite":
        return func.substr(column, literal_column("1"), literal_column("13"), type_=String)
    return func.date_trunc(literal_column("'hour'"), column, literal_column("'UTC'"))


def _moment(start: Any) -> datetime | None:
    if start is None:
        return None
    if isinstance(start, str):
        return datetime.strptime(start, "%Y-%m-%d %H").replace(tzinfo=UTC)
    moment: datetime = start
    return moment.astimezone(UTC)
