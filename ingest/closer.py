"""Closes interactions whose windows are over, and pending feedback that waited too long.

Runs by the wall clock, also without traffic. A partition is closed only up to the moment up to
which its log has been read, so the outcome never depends on how fast this worker is.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from ingest.closing import Closing, close, exclusion
from ingest.horizon import known_until
from ingest.joining import FINAL
from ingest.lives import expire
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, FeedbackValue, InteractionServed
from tidemill.eventlog.base import Bounds, EventLog
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.verifiers import Verifier, run_verifiers
from tidemill.rewards.votes import Vote
from tidemill.storage.database import Database, Session
from tidemill.storage.experiences import insert_experiences
from tidemill.storage.feedback import (
    fetch_by_target,
    fetch_expired,
    fetch_partitions_expired,
)
from tidemill.storage.interactions import (
    ClosedAs,
    fetch_closable,
    fetch_partitions_due,
    mark_closed,
)
from tidemill.storage.offsets import fetch_offsets, hold_partitions
from tidemill.storage.tables import FeedbackRow, InteractionRow

_VALUE: TypeAdapter[FeedbackValue] = TypeAdapter(FeedbackValue)


@dataclass(frozen=True, slots=True, kw_only=True)
class Closer:
    """What closing needs to know."""

    database: Database
    log: EventLog
    group: str
    metrics: MetricsFile
    verifiers: Mapping[str, Verifier]
    grace_s: float
    unmatched_after_s: float
    limit: int
    now: Callable[[], datetime]

    def close_due(self, partitions: Collection[int]) -> int:
        """Close what is due in some partitions; return how many interactions were closed.

        Raises:
            FencedError: another worker closed one of them; nothing was written.
        """
        until = self._due_until()
        with self.database.reading() as session:
            due = fetch_partitions_due(session, until=until) & set(partitions)
        if not due:
            return 0
        bounds = self.log.bounds(FEEDBACK)
        with self.database.transaction() as session:
            hold_partitions(session, self.group, due)
            cutoffs = self._cutoffs(session, FEEDBACK, due, bounds=bounds, until=until)
            rows = fetch_closable(session, partitions=cutoffs, limit=self.limit)
            if rows:
                self._close(session, rows)
            return len(rows)

    def expire_due(self, partitions: Collection[int]) -> int:
        """Turn pending feedback that waited too long into dead letters; return how many."""
        until = self._due_until()
        with self.database.reading() as session:
            due = fetch_partitions_expired(session, until=until) & set(partitions)
        if not due:
            return 0
        bounds = self.log.bounds(INTERACTIONS)
        with self.database.transaction() as session:
            hold_partitions(session, self.group, due)
            cutoffs = self._cutoffs(session, INTERACTIONS, due, bounds=bounds, until=until)
            rows = fetch_expired(session, partitions=cutoffs, limit=self.limit)
            expire(session, rows, unmatched_after_s=self.unmatched_after_s)
            return len(rows)

    def _due_until(self) -> datetime:
        return self.now() - timedelta(seconds=self.grace_s)

    def _cutoffs(
        self,
        session: Session,
        topic: str,
        partitions: Collection[int],
        *,
        bounds: Mapping[int, Bounds],
        until: datetime,
    ) -> dict[int, datetime]:
        offsets = fetch_offsets(session, self.group, topic=topic, partitions=partitions)
        cutoffs: dict[int, datetime] = {}
        for partition in partitions:
            row = offsets.get(partition)
            known = known_until(
                next_offset=None if row is None else row.next_offset,
                appended_until=None if row is None else row.appended_until,
                bounds=bounds[partition],
                now=until,
            )
            if known is not None:
                cutoffs[partition] = min(known, until)
        return cutoffs

    def _close(self, session: Session, rows: list[InteractionRow]) -> None:
        votes = _votes(session, rows)
        ends: list[ClosedAs] = []
        experiences = []
        for row in rows:
            about = votes.get((row.tenant, row.interaction_id), [])
            about = about + votes.get((row.tenant, row.trajectory_id), [])
            closing = self._judge(row, about)
            reason = None if closing.reason is None else closing.reason.value
            ends.append(ClosedAs(row.interaction_id, closing.state.value, reason))
            if closing.experience is not None:
                experiences.append(closing.experience)
        moment = self.now()
        mark_closed(session, ends, closed_at=moment)
        insert_experiences(session, experiences, created_at=moment)

    def _judge(self, row: InteractionRow, votes: list[Vote]) -> Closing:
        event = decode(InteractionServed, row.document or b"")
        verified: dict[str, float] | None = {}
        if exclusion(event) is None and not event.is_malformed:
            verified = run_verifiers(self.verifiers, event)
        return close(event, votes, self.metrics, served_at=row.appended_at, verified=verified)


def _votes(session: Session, rows: list[InteractionRow]) -> dict[tuple[str, str], list[Vote]]:
    targets = {row.interaction_id for row in rows} | {row.trajectory_id for row in rows}
    tenants = {row.tenant for row in rows}
    votes: dict[tuple[str, str], list[Vote]] = {}
    for row in fetch_by_target(session, tenants=tenants, target_ids=targets):
        if row.state not in FINAL:
            votes.setdefault((row.tenant, row.target_id), []).append(_vote_of(row))
    return votes


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
