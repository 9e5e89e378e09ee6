"""Takes a batch of log records into rows, within the caller's transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ingest.joining import Claim, FeedbackState, settle
from ingest.lives import (
    as_lived,
    claim_of,
    claim_of_new,
    key_of,
    letters_of_new,
    places_taken,
    store_lives,
)
from ingest.revisions import revise_closed
from ingest.revival import Life, settle_lives
from ingest.sifting import Sifted, read_batch, sift_feedback, sift_interactions
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import Record, TopicPartition
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.database import Session
from tidemill.storage.dead_letters import insert_dead_letters
from tidemill.storage.feedback import (
    FeedbackKey,
    Target,
    fetch_by_target,
    fetch_known_digests,
    insert_duplicates,
    insert_feedback,
)
from tidemill.storage.interactions import (
    fetch_known_documents,
    fetch_served_at,
    insert_interactions,
)
from tidemill.storage.offsets import Advance, advance_offsets, hold_partitions
from tidemill.storage.repeats import (
    Delivery,
    delete_repeats,
    fetch_dead_lettered,
    fetch_repeats,
)

TOPICS_READ = (INTERACTIONS, FEEDBACK)


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
        hold_partitions(session, self.group, {record.partition for record in records})
        moved = self._advance(session, records, expected)
        by_topic: dict[str, list[Record]] = {topic: [] for topic in TOPICS_READ}
        for record in records:
            by_topic[record.topic].append(record)
        decoded = read_batch(by_topic[INTERACTIONS], by_topic[FEEDBACK], self.metrics)
        served = {(event.tenant, event.interaction_id) for _, event in decoded.interactions}
        known = fetch_known_documents(session, served)
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
        moved = {place: batch[-1].offset + 1 for place, batch in batches.items()}
        steps = [
            Advance(
                topic=place.topic,
                partition=place.partition,
                expected=expected[place],
                first_offset=batch[0].offset,
                next_offset=moved[place],
                num_records=len(batch),
                appended_until=batch[-1].appended_at,
            )
            for place, batch in batches.items()
        ]
        advance_offsets(session, self.group, steps)
        return moved

    def _join(self, session: Session, sifted: Sifted) -> None:
        """Settle every target that something arrived for; new feedback is inserted settled."""
        arrived = _repeats_of(sifted)
        dead = fetch_dead_lettered(session, arrived)
        targets = _touched(sifted) | {(row.tenant, row.target_id) for row in dead}
        rows = fetch_by_target(session, targets)
        claims: dict[Target, list[Claim]] = {}
        for row in rows:
            claims.setdefault((row.tenant, row.target_id), []).append(claim_of(row))
        for new in sifted.feedback:
            target = (new.event.tenant, new.event.target_id)
            claims.setdefault(target, []).append(claim_of_new(new))
        served_at = _served_at(session, set(claims))
        lives = self._settle(session, claims, served_at, arrived)
        sifted.ended |= {life.claim.target for life in lives.values() if self._closes(life)}
        _forget_repeats(session, sifted, lives)
        sifted.feedback[:] = [as_lived(new, lives[key_of(new)]) for new in sifted.feedback]
        insert_feedback(session, sifted.feedback)
        store_lives(session, rows, lives)
        for new in sifted.feedback:
            sifted.letters += letters_of_new(new, lives[key_of(new)])
        fresh = {key_of(new) for new in sifted.feedback}
        arrived_lives = [life for key, life in lives.items() if key in fresh or life.outlived]
        revise_closed(session, arrived_lives, served_at, self.metrics)

    def _closes(self, life: Life) -> bool:
        metric = self.metrics.metrics.get(life.claim.metric)
        return metric is not None and metric.closes and life.state is FeedbackState.JOINED

    def _settle(
        self,
        session: Session,
        claims: Mapping[Target, list[Claim]],
        served_at: Mapping[Target, list[datetime]],
        arrived: Mapping[FeedbackKey, list[Delivery]],
    ) -> dict[FeedbackKey, Life]:
        lives: dict[FeedbackKey, Life] = {}
        for target, on_target in claims.items():
            states = settle(on_target, served_at.get(target, ()), self.metrics)
            expired = {
                one.key
                for one in on_target
                if states[one.key] is FeedbackState.DEAD_LETTERED
                and (one.state is not FeedbackState.DEAD_LETTERED or one.key in arrived)
            }
            # Hardly ever: whoever expired may have come again.
            repeats = fetch_repeats(session, expired)
            for key in expired & set(arrived):
                repeats.setdefault(key, []).extend(arrived[key])
            if not repeats:
                lives |= {one.key: Life(one, states[one.key]) for one in on_target}
                continue
            lives |= settle_lives(
                on_target,
                served_at.get(target, ()),
                self.metrics,
                repeats=repeats,
                unmatched_after_s=self.unmatched_after_s,
            )
        return lives


def _forget_repeats(session: Session, sifted: Sifted, lives: Mapping[FeedbackKey, Life]) -> None:
    taken = places_taken(lives)
    if not taken:
        return
    places = {(place.partition, place.offset) for place in taken}
    sifted.duplicates[:] = [
        one
        for one in sifted.duplicates
        if one.topic != FEEDBACK or (one.partition, one.offset) not in places
    ]
    delete_repeats(session, taken)


def _repeats_of(sifted: Sifted) -> dict[FeedbackKey, list[Delivery]]:
    found: dict[FeedbackKey, list[Delivery]] = {}
    for one in sifted.duplicates:
        if one.topic == FEEDBACK:
            place = Delivery(one.appended_at, one.partition, one.offset)
            found.setdefault((one.tenant, one.record_id), []).append(place)
    return found


def _touched(sifted: Sifted) -> set[Target]:
    targets = {(new.event.tenant, new.event.target_id) for new in sifted.feedback}
    for served in sifted.interactions:
        event = served.event
        targets |= {(event.tenant, event.interaction_id), (event.tenant, event.trajectory_id)}
    return targets


def _served_at(session: Session, targets: set[Target]) -> dict[Target, list[datetime]]:
    # Only an interaction's id holds a dot.
    interactions = {one for one in targets if "." in one[1]}
    served = fetch_served_at(
        session, interactions=interactions, trajectories=targets - interactions
    )
    found: dict[Target, list[datetime]] = {}
    for one in served:
        for target in ((one.tenant, one.interaction_id), (one.tenant, one.trajectory_id)):
            found.setdefault(target, []).append(one.appended_at)
    return found
