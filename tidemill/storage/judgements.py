"""Judgements in SQL: wanted when an interaction closes, claimed to ask, finished once."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, and_, delete, exists, insert, or_, select, update
from sqlalchemy.orm import Session

from tidemill.storage.membership import is_any, unsearched
from tidemill.storage.tables import InteractionRow, JudgementRow

_PAGE = 1000


class JudgementState(StrEnum):
    """The values are the stored strings."""

    WANTED = "wanted"
    ANSWERED = "answered"
    FAILED = "failed"
    """No answer within the declared time."""


JudgementKey = tuple[str, str]
"""Interaction id and digest, which is of the tenant too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJudgement:
    """A judgement that is wanted."""

    tenant: str
    interaction_id: str
    digest: str
    judge: str
    item: str
    wanted_at: datetime
    gives_up_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A wanted judgement that is ours to ask for."""

    key: JudgementKey
    token: str
    judge: str
    item: str
    scores: tuple[float, ...]
    is_answered: bool
    """Equal content was judged meanwhile: there is nothing left to ask."""
    gives_up_at: datetime
    num_failures: int
    document: bytes | None
    """The interaction's bytes; None once erased."""


def awaits_judgement() -> ColumnElement[bool]:
    """Return the condition that an interaction still waits for a judge."""
    return exists().where(_is_about(), unsearched(JudgementRow.state) == JudgementState.WANTED)


def fetch_judgements(
    session: Session, interaction_ids: Collection[str]
) -> dict[JudgementKey, JudgementRow]:
    """Return all judgements of some interactions."""
    if not interaction_ids:
        return {}
    query = select(JudgementRow).where(is_any(JudgementRow.interaction_id, interaction_ids))
    return {(row.interaction_id, row.digest): row for row in session.scalars(query)}


def fetch_answers(session: Session, digests: Collection[str]) -> dict[str, list[float]]:
    """Return the votes on content that was judged before, by its digest; the first ones count."""
    query = (
        select(JudgementRow.digest, JudgementRow.scores)
        .where(is_any(JudgementRow.digest, digests), JudgementRow.state == JudgementState.ANSWERED)
        .order_by(JudgementRow.finished_at.desc(), JudgementRow.interaction_id.desc())
    )
    return dict(session.execute(query).all())


def insert_wanted(session: Session, wanted: Sequence[NewJudgement]) -> None:
    """Ask for judgements; content that was judged before is answered at once."""
    if not wanted:
        return
    known = fetch_answers(session, {new.digest for new in wanted})
    session.execute(insert(JudgementRow), [_values(new, known.get(new.digest)) for new in wanted])


def has_due(session: Session, *, now: datetime) -> bool:
    """Tell whether a wanted judgement can be asked for, or has waited too long."""
    query = select(exists().where(*_free(now)))
    return bool(session.scalar(query))


def mark_given_up(session: Session, *, now: datetime) -> int:
    """Let wanted judgements fail whose time is over and that nobody asks for; return how many."""
    query = (
        update(JudgementRow)
        .where(*_free(now), JudgementRow.gives_up_at <= now)
        .values(state=JudgementState.FAILED, claim=None, finished_at=now)
        .returning(JudgementRow.interaction_id)
        .execution_options(synchronize_session=False)
    )
    return len(session.scalars(query).all())


def claim_wanted(session: Session, *, token: str, now: datetime, until: datetime) -> Claim | None:
    """Take the judgement that has been due longest; None = there is none.

    Content that another interaction was judged for meanwhile is answered without asking, and
    content that is being asked for now is left alone, so that equal content is asked for once.

    Args:
        session: where to claim.
        token: who asks; unique.
        now: the present.
        until: from then on the claim counts as dead, and anybody may take it over.
    """
    other = JudgementRow.__table__.alias("other")
    is_asked_elsewhere = exists().where(
        other.c.digest == JudgementRow.digest,
        other.c.interaction_id != JudgementRow.interaction_id,
        other.c.state == JudgementState.WANTED,
        other.c.claim.is_not(None),
        other.c.due_at > now,
    )
    query = (
        select(JudgementRow)
        .where(*_free(now), ~is_asked_elsewhere)
        .order_by(JudgementRow.due_at, JudgementRow.interaction_id, JudgementRow.digest)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = session.scalar(query)
    if row is None:
        return None
    known = fetch_answers(session, {row.digest}).get(row.digest)
    if known is not None:
        _finish(row, known, now=now)
    else:
        row.claim, row.due_at = token, until
    session.flush()
    return Claim(
        key=(row.interaction_id, row.digest),
        token=token,
        judge=row.judge,
        item=row.item,
        scores=tuple(row.scores),
        is_answered=row.state == JudgementState.ANSWERED,
        gives_up_at=row.gives_up_at,
        num_failures=row.num_failures,
        document=_fetch_document(session, row),
    )


def write_vote(
    session: Session, claim: Claim, score: float, *, num_votes: int, now: datetime
) -> bool:
    """Add a vote, and finish with the last one; False = the claim was taken over meanwhile."""
    row = _claimed(session, claim)
    if row is None:
        return False
    scores = [*claim.scores, score]
    if len(scores) >= num_votes:
        _finish(row, scores, now=now)
    else:
        row.scores, row.claim, row.due_at = scores, None, now
    row.num_failures, row.detail = 0, None
    return True


def write_failure(session: Session, claim: Claim, detail: str, *, due_at: datetime) -> bool:
    """Put a judgement off after a failed try; False = the claim was taken over meanwhile."""
    row = _claimed(session, claim)
    if row is None:
        return False
    row.claim, row.due_at, row.detail = None, due_at, detail
    row.num_failures = claim.num_failures + 1
    return True


def delete_claimed(session: Session, claim: Claim) -> None:
    """Forget a judgement that nobody wants any more: the rubric changed, or it was erased."""
    session.execute(
        delete(JudgementRow).where(
            JudgementRow.interaction_id == claim.key[0],
            JudgementRow.digest == claim.key[1],
            JudgementRow.claim == claim.token,
        )
    )


def copy_finished(source: Session, target: Session) -> int:
    """Copy all finished judgements into a database that has none; return how many."""
    columns = list(JudgementRow.__table__.columns)
    query = select(*columns).where(JudgementRow.state != JudgementState.WANTED)
    total = 0
    for page in source.execute(query).mappings().partitions(_PAGE):
        target.execute(insert(JudgementRow), [dict(row) for row in page])
        total += len(page)
    return total


def _free(now: datetime) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a wanted judgement that nobody alive asks for now."""
    return (JudgementRow.state == JudgementState.WANTED, JudgementRow.due_at <= now)


def _is_about() -> ColumnElement[bool]:
    """Return the condition that a judgement is of an interaction."""
    row = JudgementRow
    return and_(
        row.interaction_id == InteractionRow.interaction_id,
        or_(row.tenant == InteractionRow.tenant, row.tenant.is_(None)),
    )


def _fetch_document(session: Session, row: JudgementRow) -> bytes | None:
    query = (
        select(InteractionRow.document)
        .join(JudgementRow, _is_about())
        .where(JudgementRow.interaction_id == row.interaction_id, JudgementRow.digest == row.digest)
    )
    return session.scalar(query)


def _claimed(session: Session, claim: Claim) -> JudgementRow | None:
    row = session.get(JudgementRow, claim.key, with_for_update=True)
    return row if row is not None and row.claim == claim.token else None


def _finish(row: JudgementRow, scores: Sequence[float], *, now: datetime) -> None:
    row.state, row.scores, row.claim = JudgementState.ANSWERED.value, list(scores), None
    row.finished_at = now


def _values(new: NewJudgement, known: Sequence[float] | None) -> Mapping[str, object]:
    state = JudgementState.WANTED if known is None else JudgementState.ANSWERED
    return {
        "tenant": new.tenant,
        "interaction_id": new.interaction_id,
        "digest": new.digest,
        "judge": new.judge,
        "item": new.item,
        "state": state.value,
        "scores": list(known or ()),
        "wanted_at": new.wanted_at,
        "gives_up_at": new.gives_up_at,
        "due_at": new.wanted_at,
        "claim": None,
        "num_failures": 0,
        "detail": None,
        "finished_at": None if known is None else new.wanted_at,
    }
