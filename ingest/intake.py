"""Takes a batch of log records into rows, within the caller's transaction."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ingest.joining import Claim, FeedbackState, changes, settle
from ingest.sifting import Sifted, read_batch, sift_feedback, sift_interactions
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, DeadLetterReason
from tidemill.eventlog.base import Record, TopicPartition
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.database import Session
from tidemill.storage.dead_letters import NewDeadLetter, insert_dead_letters
from tidemill.storage.feedback import (
    FeedbackKey,
    NewFeedback,
    fetch_by_target,
    fetch_known_digests,
    insert_duplicates,
    insert_feedback,
    mark_states,
)
from tidemill.storage.interactions import (
    fetch_known_documents,
    fetch_served_at,
    insert_interactions,
)
from tidemill.storage.offsets import Advance, advance_offset
from tidemill.storage.tables import FeedbackRow

TOPICS_READ = (INTERACTIONS, FEEDBACK)

Target = tuple[str, str]
"""Tenant, and the id of an interaction or a trajectory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """What storing a batch needs to know."""

    group: str
    metrics: MetricsFile
    unmatched_after_s: float

    def store(
        self,
        session: Session,
        records: Sequence[Record],
        expected: Mapping[TopicPartition, int | None],
    ) -> tuple[Sifted, dict[TopicPartition, int]]:
        """Write the rows of a batch and move the offsets.

        Args:
            session: the transaction.
            records: in log order within each partition.
            expected: where this worker believes each partition stands; None = not begun.

        Returns:
            What the records came to, and where each partition stands now.

        Raises:
            FencedError: another worker came first; the transaction must be dropped.
        """
        moved = self._advance(session, records, expected)
        by_topic: dict[str, list[Record]] = {topic: [] for topic in TOPICS_READ}
        for record in records:
            by_topic[record.topic].append(record)
        decoded = read_batch(by_topic[INTERACTIONS], by_topic[FEEDBACK], self.metrics)
        known = fetch_known_documents(session, {e.interaction_id for _, e in decoded.interactions})
        sifted = sift_interactions(decoded, known, window_s=self.metrics.window_s)
        insert_interactions(session, sifted.interactions)
        keys = {(event.tenant, event.feedback_id) for _, event in decoded.feedback}
        digests = fetch_known_digests(session, keys)
        sift_feedback(decoded, digests, sifted, unmatched_after_s=self.unmatched_after_s)
        self._join(session, sifted)
        insert_duplicates(session, sifted.duplicates)
        insert_dead_letters(session, sifted.letters)
        return sifted, moved

    def _advance(
        self,
        session: Session,
        records: Sequence[Record],
        expected: Mapping[TopicPartition, int | None],
    ) -> dict[TopicPartition, int]:
        batches: dict[TopicPartition, list[Record]] = {}
        for record in records:
            batches.setdefault(record.topic_partition, []).append(record)
        moved: dict[TopicPartition, int] = {}
        # Sorted, so that two workers never wait for each other's rows in a circle.
        for place, batch in sorted(batches.items()):
            moved[place] = batch[-1].offset + 1
            step = Advance(
                topic=place.topic,
                partition=place.partition,
                expected=expected[place],
                first_offset=batch[0].offset,
                next_offset=moved[place],
                num_records=len(batch),
                appended_until=batch[-1].appended_at,
            )
            advance_offset(session, self.group, step)
        return moved

    def _join(self, session: Session, sifted: Sifted) -> None:
        """Settle every target that something arrived for; new feedback is inserted settled."""
        targets = _touched(sifted)
        rows = _existing(session, targets)
        served_at = _served_at(session, targets)
        claims: dict[Target, list[Claim]] = {}
        for row in rows:
            claims.setdefault((row.tenant, row.target_id), []).append(claim_of(row))
        for new in sifted.feedback:
            target = (new.event.tenant, new.event.target_id)
            claims.setdefault(target, []).append(_claim_of_new(new))
        moves: dict[FeedbackKey, FeedbackState] = {}
        for target, on_target in claims.items():
            states = settle(on_target, served_at.get(target, ()), self.metrics)
            moves |= changes(on_target, states)
        sifted.feedback[:] = [
            replace(new, state=moves.pop(_key(new), new.state)) for new in sifted.feedback
        ]
        insert_feedback(session, sifted.feedback)
        mark_states(session, moves)
        expired = [row for row in rows if moves.get(_row_key(row)) is FeedbackState.DEAD_LETTERED]
        sifted.letters += unmatched(expired)
        sifted.letters += _unmatched_new(sifted.feedback)


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


def unmatched(rows: Iterable[FeedbackRow]) -> list[NewDeadLetter]:
    """Return dead letters for feedback whose interaction did not come in time."""
    return [
        _unmatched_letter(
            row.document or b"", (row.partition, row.log_offset), row.appended_at, _row_key(row)
        )
        for row in rows
    ]


def _unmatched_new(feedback: Iterable[NewFeedback]) -> list[NewDeadLetter]:
    return [
        _unmatched_letter(new.document, (new.partition, new.offset), new.appended_at, _key(new))
        for new in feedback
        if new.state == FeedbackState.DEAD_LETTERED
    ]


def _unmatched_letter(
    document: bytes, place: tuple[int, int], appended_at: datetime, key: FeedbackKey
) -> NewDeadLetter:
    return NewDeadLetter(
        topic=FEEDBACK,
        partition=place[0],
        offset=place[1],
        appended_at=appended_at,
        payload=document,
        reason=DeadLetterReason.UNMATCHED.value,
        detail="its interaction did not come in time",
        tenant=key[0],
        record_id=key[1],
        owns_record=False,
    )


def _touched(sifted: Sifted) -> set[Target]:
    targets = {(new.event.tenant, new.event.target_id) for new in sifted.feedback}
    for served in sifted.interactions:
        event = served.event
        targets |= {(event.tenant, event.interaction_id), (event.tenant, event.trajectory_id)}
    return targets


def _existing(session: Session, targets: set[Target]) -> list[FeedbackRow]:
    tenants = {tenant for tenant, _ in targets}
    rows = fetch_by_target(session, tenants=tenants, target_ids={one for _, one in targets})
    return [row for row in rows if (row.tenant, row.target_id) in targets]


def _served_at(session: Session, targets: set[Target]) -> dict[Target, list[datetime]]:
    ids = {one for _, one in targets}
    # Only an interaction's id holds a dot.
    interaction_ids = {one for one in ids if "." in one}
    served = fetch_served_at(
        session, interaction_ids=interaction_ids, trajectory_ids=ids - interaction_ids
    )
    found: dict[Target, list[datetime]] = {}
    for one in served:
        for target in ((one.tenant, one.interaction_id), (one.tenant, one.trajectory_id)):
            found.setdefault(target, []).append(one.appended_at)
    return found


def _claim_of_new(new: NewFeedback) -> Claim:
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


def _key(new: NewFeedback) -> FeedbackKey:
    return (new.event.tenant, new.event.feedback_id)


def _row_key(row: FeedbackRow) -> FeedbackKey:
    return (row.tenant, row.feedback_id)
