"""Quarantine: raters, subjects and tenants whose feedback is kept and counted without effect.

It decides what is used, not what is stored: ingest rewards as ever, so that a replay gives the same
experiences, and a learner drops those that somebody in quarantine had a part in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func, or_, select, update
from sqlalchemy.orm import Session

from tidemill.contracts.experience import Origin
from tidemill.storage.experiences import DROPPED, READY
from tidemill.storage.tables import ExperienceRow, FeedbackRow, QuarantineRow


class QuarantineKind(StrEnum):
    """Who is in quarantine; the values are the stored strings."""

    RATER = "rater"
    SUBJECT = "subject"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One stay in quarantine, and how much feedback it holds."""

    row: QuarantineRow
    num_feedback: int
    """Feedback of the rater, or of the tenant; 0 for a subject, whose interactions count."""


def add_to_quarantine(  # noqa: PLR0913  each a column
    session: Session,
    *,
    tenant: str,
    kind: QuarantineKind,
    who: str,
    reason: str,
    actor: str,
    now: datetime,
) -> int | None:
    """Begin a stay and return its number; None = it has begun before and lasts."""
    active = select(QuarantineRow.id).where(
        QuarantineRow.tenant == tenant,
        QuarantineRow.kind == kind.value,
        QuarantineRow.who == who,
        QuarantineRow.removed_at.is_(None),
    )
    if session.scalar(active) is not None:
        return None
    row = QuarantineRow(
        tenant=tenant,
        kind=kind.value,
        who=who,
        reason=reason,
        added_at=now,
        added_by=actor,
        removed_at=None,
        removed_by=None,
        removed_reason=None,
    )
    session.add(row)
    session.flush()
    return row.id


def remove_from_quarantine(
    session: Session, number: int, *, reason: str, actor: str, now: datetime
) -> bool:
    """End a stay; False = there is none of this number, or it has ended."""
    ended = (
        update(QuarantineRow)
        .where(QuarantineRow.id == number, QuarantineRow.removed_at.is_(None))
        .values(removed_at=now, removed_by=actor, removed_reason=reason)
        .returning(QuarantineRow.id)
    )
    return session.scalar(ended) is not None


def fetch_quarantine(session: Session, *, is_lasting: bool = True) -> list[Stay]:
    """Return the stays that last, or all that ever were, oldest first."""
    of_rater = (QuarantineRow.kind == QuarantineKind.RATER.value) & (
        FeedbackRow.rater == QuarantineRow.who
    )
    of_tenant = QuarantineRow.kind == QuarantineKind.TENANT.value
    number = (
        select(func.count())
        .select_from(FeedbackRow)
        .where(FeedbackRow.tenant == QuarantineRow.tenant, or_(of_rater, of_tenant))
        .correlate(QuarantineRow)
        .scalar_subquery()
    )
    query = select(QuarantineRow, number).order_by(QuarantineRow.id)
    if is_lasting:
        query = query.where(QuarantineRow.removed_at.is_(None))
    return [Stay(row=row, num_feedback=held) for row, held in session.execute(query)]


def has_quarantine(session: Session, *, tenant: str) -> bool:
    """Tell whether anybody of a tenant is in quarantine."""
    query = select(QuarantineRow.id).where(
        QuarantineRow.tenant == tenant, QuarantineRow.removed_at.is_(None)
    )
    return session.scalar(query.limit(1)) is not None


def drop_quarantined(session: Session, *, model: str, tenant: str, reason: str) -> int:
    """Mark live experiences that somebody in quarantine had a part in as dropped; return how many.

    Also those that were used, but not yet as often as declared.
    """
    statement = (
        update(ExperienceRow)
        .where(
            ExperienceRow.model == model,
            ExperienceRow.tenant == tenant,
            ExperienceRow.origin == Origin.LIVE.value,
            ExperienceRow.state == READY,
            touches_quarantine(("joined", "superseded")),
        )
        .values(state=DROPPED, dropped_reason=reason)
        .execution_options(synchronize_session=False)
    )
    result: Any = session.execute(statement)
    return int(result.rowcount)


def touches_quarantine(states: Sequence[str]) -> ColumnElement[bool]:
    """Return the condition that somebody in quarantine had a part in an experience.

    Its tenant or its subject, or a rater with feedback in one of some states on it or on its
    trajectory.
    """
    stay = QuarantineRow
    lasts = and_(stay.tenant == ExperienceRow.tenant, stay.removed_at.is_(None))
    rated = (
        select(FeedbackRow.feedback_id)
        .where(
            FeedbackRow.tenant == ExperienceRow.tenant,
            FeedbackRow.target_id.in_((ExperienceRow.experience_id, ExperienceRow.trajectory_id)),
            FeedbackRow.rater == stay.who,
            FeedbackRow.state.in_(states),
        )
        .correlate(ExperienceRow, stay)
    )
    return exists(
        select(stay.id)
        .where(
            lasts,
            or_(
                stay.kind == QuarantineKind.TENANT.value,
                and_(stay.kind == QuarantineKind.SUBJECT.value, stay.who == ExperienceRow.subject),
                and_(stay.kind == QuarantineKind.RATER.value, rated.exists()),
            ),
        )
        .correlate(ExperienceRow)
    )
