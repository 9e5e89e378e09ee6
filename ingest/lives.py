"""Writes what became of feedback: its row's place and state, and its dead letters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ingest.joining import Claim, FeedbackState
from ingest.revival import Life, revive
from tidemill.contracts.events import FEEDBACK, DeadLetterReason
from tidemill.storage.database import Session
from tidemill.storage.dead_letters import (
    LetterPlace,
    LetterState,
    NewDeadLetter,
    insert_dead_letters,
    mark_returned,
)
from tidemill.storage.feedback import FeedbackKey, NewFeedback, mark_states
from tidemill.storage.repeats import Delivery, Moved, delete_repeats, fetch_repeats, move_feedback
from tidemill.storage.tables import FeedbackRow


def claim_of(row: FeedbackRow) -> Claim:
    """Return what a stored feedback's state depends on."""
    return Claim(
        tenant=row.tenant,
        feedback_id=row.feedback_id,
        target_id=row.target_id,
        metric=row.metric,
        rater=row.rater,
        appended_at=row.appended_at,
        partition=row.partition,
        offset=row.log_offset,
        expires_at=row.expires_at,
        state=FeedbackState(row.state),
    )


def claim_of_new(new: NewFeedback) -> Claim:
    """Return what a new feedback's state depends on."""
    event = new.event
    return Claim(
        tenant=event.tenant,
        feedback_id=event.feedback_id,
        target_id=event.target_id,
        metric=event.metric,
        rater=event.rater,
        appended_at=new.appended_at,
        partition=new.partition,
        offset=new.offset,
        expires_at=new.expires_at,
        state=FeedbackState(new.state),
    )


def store_lives(
    session: Session, rows: Iterable[FeedbackRow], lives: Mapping[FeedbackKey, Life]
) -> None:
    """Write what became of stored feedback, with its dead letters."""
    states: dict[FeedbackKey, str] = {}
    moved: list[Moved] = []
    letters: list[NewDeadLetter] = []
    returned: list[LetterPlace] = []
    for row in rows:
        life, before = lives[_row_key(row)], FeedbackState(row.state)
        was_dead = before is FeedbackState.DEAD_LETTERED
        outlived = life.outlived
        if outlived:
            moved.append(_moved(life))
        elif life.state is not before:
            states[_row_key(row)] = life.state
        if was_dead and outlived:
            returned.append(LetterPlace(FEEDBACK, row.partition, row.log_offset))
            outlived = outlived[1:]
        letters += [_returned_letter(row.document or b"", claim) for claim in outlived]
        if life.state is FeedbackState.DEAD_LETTERED and (life.outlived or not was_dead):
            letters.append(_unmatched_letter(row.document or b"", life.claim))
    mark_states(session, states)
    mark_returned(session, returned)
    move_feedback(session, moved)
    insert_dead_letters(session, letters)


def expire(session: Session, rows: Sequence[FeedbackRow], *, unmatched_after_s: float) -> None:
    """Turn pending feedback whose time is over into dead letters, unless it came again since."""
    repeats = fetch_repeats(session, {_row_key(row) for row in rows})
    lives: dict[FeedbackKey, Life] = {}
    for row in rows:
        claim, again = claim_of(row), repeats.get(_row_key(row), ())
        lives[claim.key] = Life(claim, FeedbackState.DEAD_LETTERED)
        revived = revive(claim, again, unmatched_after_s=unmatched_after_s)
        if revived is not None:
            lives[claim.key] = Life(revived, FeedbackState.PENDING, (claim,))
    delete_repeats(session, places_taken(lives))
    store_lives(session, rows, lives)


def as_lived(new: NewFeedback, life: Life) -> NewFeedback:
    """Return a new feedback at the record and in the state that it has come to."""
    claim = life.claim
    return new._replace(
        state=life.state,
        partition=claim.partition,
        offset=claim.offset,
        appended_at=claim.appended_at,
        expires_at=claim.expires_at,
    )


def _moved(life: Life) -> Moved:
    claim = life.claim
    return Moved(key=claim.key, to=_place_of(claim), expires_at=claim.expires_at, state=life.state)


def _place_of(claim: Claim) -> Delivery:
    return Delivery(claim.appended_at, claim.partition, claim.offset)


def places_taken(lives: Mapping[FeedbackKey, Life]) -> set[Delivery]:
    """Return the repeated deliveries that are none any more: a row or a letter stands for them."""
    return {
        _place_of(claim)
        for life in lives.values()
        if life.outlived
        for claim in (*life.outlived[1:], life.claim)
    }


def letters_of_new(new: NewFeedback, life: Life) -> list[NewDeadLetter]:
    """Return the dead letters of a new feedback."""
    letters = [_returned_letter(new.document, claim) for claim in life.outlived]
    if life.state is FeedbackState.DEAD_LETTERED:
        letters.append(_unmatched_letter(new.document, life.claim))
    return letters


def _unmatched_letter(document: bytes, claim: Claim) -> NewDeadLetter:
    return NewDeadLetter(
        topic=FEEDBACK,
        partition=claim.partition,
        offset=claim.offset,
        appended_at=claim.appended_at,
        payload=document,
        reason=DeadLetterReason.UNMATCHED.value,
        detail="its interaction did not come in time",
        tenant=claim.tenant,
        record_id=claim.feedback_id,
        owns_record=False,
    )


def _returned_letter(document: bytes, claim: Claim) -> NewDeadLetter:
    return replace(_unmatched_letter(document, claim), owns_record=True, state=LetterState.RETURNED)


def key_of(new: NewFeedback) -> FeedbackKey:
    """Return what names a new feedback."""
    return (new.event.tenant, new.event.feedback_id)


def _row_key(row: FeedbackRow) -> FeedbackKey:
    return (row.tenant, row.feedback_id)
