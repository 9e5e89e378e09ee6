"""New, repeated, conflicting or unusable: what each log record is. Pure.

Every record ends as exactly one of: a new row, a duplicate delivery, a dead letter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from ingest.decoding import Unusable, decode_feedback, decode_interaction
from ingest.joining import FeedbackState
from tidemill.contracts.events import DeadLetterReason, FeedbackReceived, InteractionServed
from tidemill.eventlog.base import Record
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.dead_letters import NewDeadLetter
from tidemill.storage.feedback import Duplicate, FeedbackKey, NewFeedback
from tidemill.storage.interactions import InteractionKey, NewInteraction


@dataclass(slots=True)
class Sifted:
    """What a batch of records comes to."""

    interactions: list[NewInteraction] = field(default_factory=list)
    feedback: list[NewFeedback] = field(default_factory=list)
    duplicates: list[Duplicate] = field(default_factory=list)
    letters: list[NewDeadLetter] = field(default_factory=list)
    ended: set[InteractionKey] = field(default_factory=set)
    """Interactions that an answer has closed, before their windows are over."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A batch as read, before anything known is looked up."""

    interactions: list[tuple[Record, InteractionServed]]
    feedback: list[tuple[Record, FeedbackReceived]]
    unusable: list[tuple[Record, Unusable]]


def read_batch(
    interactions: Iterable[Record], feedback: Iterable[Record], metrics: MetricsFile
) -> Decoded:
    """Decode the records of a batch."""
    decoded = Decoded([], [], [])
    for record in interactions:
        interaction = decode_interaction(record)
        if isinstance(interaction, Unusable):
            decoded.unusable.append((record, interaction))
        else:
            decoded.interactions.append((record, interaction))
    for record in feedback:
        one = decode_feedback(record, metrics)
        if isinstance(one, Unusable):
            decoded.unusable.append((record, one))
        else:
            decoded.feedback.append((record, one))
    return decoded


def sift_interactions(
    decoded: Decoded, known: Mapping[InteractionKey, bytes | None], *, window_s: float
) -> Sifted:
    """Tell new interactions from repeats and conflicts.

    Args:
        decoded: the batch.
        known: stored bytes of those already known; None = erased since.
        window_s: how long an interaction stays open.
    """
    sifted = Sifted(letters=[dead_letter(record, why) for record, why in decoded.unusable])
    seen = dict(known)
    for record, event in decoded.interactions:
        key = (event.tenant, event.interaction_id)
        if key not in seen:
            seen[key] = record.value
            sifted.interactions.append(
                NewInteraction(
                    event=event,
                    document=record.value,
                    partition=record.partition,
                    offset=record.offset,
                    appended_at=record.appended_at,
                    closes_at=record.appended_at + timedelta(seconds=window_s),
                )
            )
            continue
        first = seen[key]
        _repeat(sifted, record, key, same=first is None or first == record.value)
    return sifted


def sift_feedback(
    decoded: Decoded,
    known: Mapping[FeedbackKey, str],
    sifted: Sifted,
    *,
    unmatched_after_s: float,
) -> None:
    """Tell new feedback from repeats and conflicts, and add it to what was sifted.

    Args:
        decoded: the batch.
        known: body digest by id of those already known.
        sifted: where results go; new feedback is pending until it is joined.
        unmatched_after_s: how long feedback waits for its interaction.
    """
    seen = dict(known)
    for record, event in decoded.feedback:
        key = (event.tenant, event.feedback_id)
        if key not in seen:
            seen[key] = event.body_digest
            sifted.feedback.append(
                NewFeedback(
                    event=event,
                    document=record.value,
                    partition=record.partition,
                    offset=record.offset,
                    appended_at=record.appended_at,
                    expires_at=record.appended_at + timedelta(seconds=unmatched_after_s),
                    state=FeedbackState.PENDING,
                )
            )
            continue
        _repeat(sifted, record, key, same=seen[key] == event.body_digest)


def dead_letter(record: Record, why: Unusable, *, owns_record: bool = True) -> NewDeadLetter:
    """Return a record as a dead letter."""
    return NewDeadLetter(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        appended_at=record.appended_at,
        payload=record.value,
        reason=why.reason.value,
        detail=why.detail,
        tenant=why.tenant,
        record_id=why.record_id,
        owns_record=owns_record,
    )


def _repeat(sifted: Sifted, record: Record, key: FeedbackKey, *, same: bool) -> None:
    tenant, record_id = key
    if same:
        sifted.duplicates.append(
            Duplicate(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                tenant=tenant,
                record_id=record_id,
                appended_at=record.appended_at,
            )
        )
        return
    detail = "this id is known with another body; the first one stands"
    why = Unusable(DeadLetterReason.CONFLICTING_BODY, detail, tenant, record_id)
    sifted.letters.append(dead_letter(record, why))
