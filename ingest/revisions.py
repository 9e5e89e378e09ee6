"""Writes the revisions that late feedback makes, in the transaction that stores the feedback."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pydantic import TypeAdapter

from ingest.joining import FINAL, Claim, FeedbackState
from ingest.revising import Closed, Place, Revision, revise
from ingest.revival import Life
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FeedbackValue, InteractionServed
from tidemill.contracts.experience import Experience, Outcome
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.votes import Vote, is_late
from tidemill.storage.database import Session
from tidemill.storage.feedback import Target, fetch_by_target
from tidemill.storage.revisions import (
    NewRevision,
    Revisable,
    fetch_revisable,
    insert_revisions,
)
from tidemill.storage.tables import FeedbackRow

_VALUE: TypeAdapter[FeedbackValue] = TypeAdapter(FeedbackValue)


class StoredVotes:
    """Feedback rows as the reward sees them, by what they are about."""

    def __init__(self, rows: Iterable[FeedbackRow]) -> None:
        """Take the rows that may still count."""
        self._by_target: dict[Target, list[Vote]] = {}
        self._ids: dict[Place, str] = {}
        for row in rows:
            if row.state not in FINAL:
                self._by_target.setdefault((row.tenant, row.target_id), []).append(_vote_of(row))
                self._ids[row.partition, row.log_offset] = row.feedback_id

    def about(self, tenant: str, *, interaction_id: str, trajectory_id: str) -> list[Vote]:
        """Return the votes on an interaction and on its trajectory."""
        on_interaction = self._by_target.get((tenant, interaction_id), [])
        return on_interaction + self._by_target.get((tenant, trajectory_id), [])

    def feedback_id(self, vote: Vote) -> str:
        """Return the id of a vote's feedback."""
        return self._ids[vote.partition, vote.offset]


def revise_closed(
    session: Session,
    lives: Iterable[Life],
    served_at: Mapping[Target, Sequence[datetime]],
    metrics: MetricsFile,
) -> None:
    """Write what newly stored feedback makes of experiences whose windows it missed.

    Args:
        session: the transaction, in which the feedback was stored already.
        lives: of the feedback.
        served_at: append times of the interactions of each target.
        metrics: the declared metrics.
    """
    late = [
        life.claim
        for life in lives
        if life.state not in FINAL and _is_late(life, served_at, metrics)
    ]
    for tenant in sorted({claim.tenant for claim in late}):
        _revise(session, tenant, [one for one in late if one.tenant == tenant], metrics)


def build_revisions(
    closed: Closed, votes: StoredVotes, metrics: MetricsFile, places: Iterable[Place] | None = None
) -> list[NewRevision]:
    """Return the revisions of an experience as rows."""
    experience = closed.experience
    about = votes.about(
        experience.tenant,
        interaction_id=experience.experience_id,
        trajectory_id=experience.trajectory_id,
    )
    wanted = None if places is None else frozenset(places)
    return [
        _new_revision(experience, revision, votes.feedback_id(revision.vote))
        for revision in revise(closed, about, metrics, places=wanted)
    ]


def _revise(session: Session, tenant: str, late: Sequence[Claim], metrics: MetricsFile) -> None:
    closed = fetch_revisable(session, tenant=tenant, target_ids={one.target_id for one in late})
    targets = {(tenant, one.experience.experience_id) for one in closed}
    targets |= {(tenant, one.experience.trajectory_id) for one in closed}
    votes = StoredVotes(fetch_by_target(session, targets))
    places = {(one.partition, one.offset) for one in late}
    insert_revisions(
        session,
        [
            revision
            for one in closed
            for revision in build_revisions(_closed(one), votes, metrics, places)
        ],
    )


def _is_late(
    life: Life, served_at: Mapping[Target, Sequence[datetime]], metrics: MetricsFile
) -> bool:
    claim = life.claim
    metric = metrics.metrics.get(claim.metric)
    if metric is None or not metric.is_scored:
        return False
    if life.state is FeedbackState.LATE:
        return True
    moments = served_at.get((claim.tenant, claim.target_id), ())
    return any(is_late(claim, metric, served_at=moment) for moment in moments)


def _closed(one: Revisable) -> Closed:
    event = decode(InteractionServed, one.document)
    return Closed(one.experience, event.content.completion, one.served_at)


def _new_revision(experience: Experience, revision: Revision, feedback_id: str) -> NewRevision:
    reward, vote = revision.reward, revision.vote
    outcome = Outcome.DEFAULTED if reward.is_defaulted else Outcome.REWARDED
    return NewRevision(
        tenant=experience.tenant,
        experience_id=experience.experience_id,
        feedback_id=feedback_id,
        outcome=outcome.value,
        reward=reward.value,
        components=reward.components,
        reward_spec_hash=experience.reward_spec_hash,
        partition=vote.partition,
        offset=vote.offset,
        appended_at=vote.appended_at,
    )


def _vote_of(row: FeedbackRow) -> Vote:
    return Vote(
        metric=row.metric,
        rater=row.rater,
        value=_VALUE.validate_python(row.value),
        appended_at=row.appended_at,
        partition=row.partition,
        offset=row.log_offset,
        expires_at=row.expires_at,
    )
