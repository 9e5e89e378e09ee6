"""Experiences in SQL: written once by ingest and backfill, read by the learner and the gate."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from tidemill.contracts.experience import Experience, Origin, Outcome
from tidemill.storage.bulk import insert_rows
from tidemill.storage.tables import ExperienceRow, InteractionRow

READY = "ready"
USED = "used"
DROPPED = "dropped"

ExperienceKey = tuple[str, str]
"""Tenant and experience id."""


def insert_experience(session: Session, experience: Experience, *, created_at: datetime) -> None:
    """Add one experience, ready to train on."""
    insert_experiences(session, [experience], created_at=created_at)


def insert_experiences(
    session: Session, experiences: Sequence[Experience], *, created_at: datetime
) -> None:
    """Add experiences, ready to train on, in one statement."""
    insert_rows(session, ExperienceRow, [_values(one, created_at) for one in experiences])


def to_experience(row: ExperienceRow) -> Experience:
    """Return a row as the record that learning works on; its digest is the stored one."""
    return Experience(
        experience_id=row.experience_id,
        origin=Origin(row.origin),
        tenant=row.tenant,
        model=row.model,
        trajectory_id=row.trajectory_id,
        turn=row.turn,
        subject=row.subject,
        context=row.context,
        group=row.group_id,
        oldest_policy_version=row.oldest_policy_version,
        newest_policy_version=row.newest_policy_version,
        arm=row.arm,
        assignment_probability=row.assignment_probability,
        prompt_ids=row.prompt_ids,
        completion_ids=row.completion_ids,
        behaviour_logprobs=row.behaviour_logprobs,
        temperature=row.temperature,
        is_truncated=row.is_truncated,
        kept_mass=row.kept_mass,
        finish_reason=row.finish_reason,
        outcome=Outcome(row.outcome),
        reward=row.reward,
        components=dict(row.components),
        reward_spec_hash=row.reward_spec_hash,
    )


def fetch_experience(session: Session, *, tenant: str, experience_id: str) -> Experience | None:
    """Return one experience of a tenant; None = unknown."""
    row = session.get(ExperienceRow, (experience_id, tenant))
    return None if row is None else to_experience(row)


def fetch_experiences(
    session: Session,
    *,
    model: str,
    tenant: str,
    origin: Origin | None = None,
    limit: int = 1000,
) -> list[Experience]:
    """Return the newest experiences of a model, newest first."""
    query = select(ExperienceRow).where(
        ExperienceRow.model == model, ExperienceRow.tenant == tenant
    )
    if origin is not None:
        query = query.where(ExperienceRow.origin == origin)
    order = (ExperienceRow.closed_at.desc(), ExperienceRow.experience_id)
    return [to_experience(row) for row in session.scalars(query.order_by(*order).limit(limit))]


def fetch_experience_digests(
    session: Session, *, origin: Origin = Origin.LIVE
) -> dict[ExperienceKey, str]:
    """Return the content digest of every experience: what a replay must give again."""
    row = ExperienceRow
    query = select(row.tenant, row.experience_id, row.digest).where(row.origin == origin)
    return {(tenant, one): digest for tenant, one, digest in session.execute(query)}


def is_of_interaction() -> ColumnElement[bool]:
    """Return the condition that an experience is that of an interaction."""
    return and_(
        ExperienceRow.experience_id == InteractionRow.interaction_id,
        ExperienceRow.tenant == InteractionRow.tenant,
    )


def fetch_experience_counts(session: Session, *, model: str, tenant: str) -> dict[str, int]:
    """Return how many experiences are ready, used and dropped."""
    query = (
        select(ExperienceRow.state, func.count())
        .where(ExperienceRow.model == model, ExperienceRow.tenant == tenant)
        .group_by(ExperienceRow.state)
    )
    counts = dict(session.execute(query).all())
    return {state: counts.get(state, 0) for state in (READY, USED, DROPPED)}


def _values(experience: Experience, created_at: datetime) -> dict[str, Any]:
    return {
        "experience_id": experience.experience_id,
        "origin": experience.origin.value,
        "tenant": experience.tenant,
        "model": experience.model,
        "trajectory_id": experience.trajectory_id,
        "turn": experience.turn,
        "subject": experience.subject,
        "context": experience.context,
        "group_id": experience.group,
        "oldest_policy_version": experience.oldest_policy_version,
        "newest_policy_version": experience.newest_policy_version,
        "arm": experience.arm,
        "assignment_probability": experience.assignment_probability,
        "prompt_ids": experience.prompt_ids,
        "completion_ids": experience.completion_ids,
        "behaviour_logprobs": experience.behaviour_logprobs,
        "kept_mass": experience.kept_mass,
        "temperature": experience.temperature,
        "is_truncated": experience.is_truncated,
        "finish_reason": experience.finish_reason,
        "outcome": experience.outcome.value,
        "reward": experience.reward,
        "components": dict(experience.components),
        "reward_spec_hash": experience.reward_spec_hash,
        "digest": experience.digest,
        "closed_at": created_at,
        "state": READY,
        "dropped_reason": None,
        "num_uses": 0,
    }
