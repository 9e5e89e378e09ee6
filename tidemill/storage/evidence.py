"""What the gate reads about live traffic: outcomes of one version, in order of closing."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Integer, func, or_, select
from sqlalchemy.orm import Session

from tidemill.contracts.events import Arm
from tidemill.contracts.experience import Outcome
from tidemill.storage.experiences import is_of_interaction
from tidemill.storage.tables import ExperienceRow, InteractionRow

_BYTES_PER_ID = 4
"""Of `PackedIds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedOutcome:
    """One closed interaction, as far as the gate cares."""

    unit: str
    """What was assigned to an arm: the subject, else the trajectory."""
    state: str
    """rewarded, defaulted, malformed or excluded."""
    excluded_reason: str | None
    reward: float | None
    """None without an experience."""
    num_tokens: int | None
    """Length of the completion; None without an experience."""

    @property
    def is_labelled(self) -> bool:
        """Whether somebody or something judged it: silence and defaults are no labels."""
        return self.state in (Outcome.REWARDED, Outcome.MALFORMED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Which interactions of a version count."""

    model: str
    tenant: str
    version: str
    arms: tuple[Arm, ...] = (Arm.CHAMPION, Arm.CHALLENGER)
    after: datetime | None = None
    """Appended to the log later than this."""
    closed_until: datetime | None = None
    """Windows over by then."""
    randomised: bool = False
    """Only where chance could have chosen another arm."""


def fetch_outcomes(
    session: Session, window: Window, *, newest: int | None = None
) -> list[ServedOutcome]:
    """Return closed interactions in the order of their closing; `newest` keeps the last ones."""
    query = (
        select(
            func.coalesce(InteractionRow.subject, InteractionRow.trajectory_id),
            InteractionRow.state,
            InteractionRow.excluded_reason,
            ExperienceRow.reward,
            func.length(ExperienceRow.completion_ids, type_=Integer),
        )
        .outerjoin(ExperienceRow, is_of_interaction())
        .where(*_conditions(window), InteractionRow.state.not_in(("open", "erased")))
    )
    if window.randomised:
        has_chance = ExperienceRow.assignment_probability < 1
        query = query.where(or_(ExperienceRow.experience_id.is_(None), has_chance))
    order = (InteractionRow.closes_at, InteractionRow.interaction_id)
    if newest is None:
        return [_outcome(*row) for row in session.execute(query.order_by(*order))]
    query = query.order_by(*(column.desc() for column in order)).limit(newest)
    return [_outcome(*row) for row in session.execute(query)][::-1]


def fetch_first_served(session: Session, window: Window) -> datetime | None:
    """Return when the window's first interaction was appended, None without one."""
    query = select(func.min(InteractionRow.appended_at)).where(*_conditions(window))
    return session.scalar(query)


def fetch_horizon(session: Session, *, model: str, tenant: str, latest: datetime) -> datetime:
    """Return until when the evidence is complete: `latest`, or the oldest unfinished closing."""
    query = select(func.min(InteractionRow.closes_at)).where(
        InteractionRow.state == "open",
        InteractionRow.model == model,
        InteractionRow.tenant == tenant,
        InteractionRow.arm.in_((Arm.CHAMPION, Arm.CHALLENGER)),
        InteractionRow.closes_at <= latest,
    )
    oldest = session.scalar(query)
    return latest if oldest is None else min(latest, oldest)


def _conditions(window: Window) -> list[ColumnElement[bool]]:
    conditions = [
        InteractionRow.model == window.model,
        InteractionRow.tenant == window.tenant,
        InteractionRow.policy_version == window.version,
        InteractionRow.arm.in_(window.arms),
    ]
    if window.after is not None:
        conditions.append(InteractionRow.appended_at > window.after)
    if window.closed_until is not None:
        conditions.append(InteractionRow.closes_at < window.closed_until)
    return conditions


def _outcome(
    unit: str,
    state: str,
    excluded_reason: str | None,
    reward: float | None,
    num_bytes: int | None,
) -> ServedOutcome:
    return ServedOutcome(
        unit=unit,
        state=state,
        excluded_reason=excluded_reason,
        reward=reward,
        num_tokens=None if num_bytes is None else num_bytes // _BYTES_PER_ID,
    )
