"""Closes interactions whose windows are over, and pending feedback that waited too long.

Runs by the wall clock, also without traffic. A partition is closed only up to the moment up to
which its log has been read, so the outcome never depends on how fast this worker is.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from ingest.horizon import known_until
from ingest.judging import Case, close_all, want
from ingest.lives import expire
from ingest.revising import Closed
from ingest.revisions import StoredVotes, build_revisions
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, InteractionServed
from tidemill.contracts.experience import Experience
from tidemill.eventlog.base import Bounds, EventLog
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.verifiers import Verifier
from tidemill.storage.database import Database, Session
from tidemill.storage.experiences import insert_experiences
from tidemill.storage.feedback import (
    fetch_by_target,
    fetch_expired,
    fetch_partitions_expired,
)
from tidemill.storage.interactions import (
    Closable,
    ClosedAs,
    InteractionKey,
    fetch_closable,
    fetch_open,
    fetch_partitions_due,
    mark_closed,
)
from tidemill.storage.offsets import fetch_offsets, hold_partitions
from tidemill.storage.revisions import NewRevision, insert_revisions


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
    judge_wait_s: float
    now: Callable[[], datetime]

    def close_due(self, partitions: Collection[int]) -> int:
        """Close what is due in some partitions; return how many were closed or put to a judge.

        Raises:
            FencedError: another worker closed one of them; nothing was written.
        """
        until = self._due_until()
        with self.database.reading() as session:
            waiting = fetch_partitions_due(session, until=until, is_judged=self._is_judged)
            due = waiting & set(partitions)
        if not due:
            return 0
        bounds = self.log.bounds(FEEDBACK)
        with self.database.transaction() as session:
            hold_partitions(session, self.group, due)
            cutoffs = self._cutoffs(session, FEEDBACK, due, bounds=bounds, until=until)
            rows = fetch_closable(
                session, partitions=cutoffs, limit=self.limit, is_judged=self._is_judged
            )
            if rows:
                self._close(session, rows)
            return len(rows)

    def close_ended(self, keys: Collection[InteractionKey]) -> int:
        """Close interactions that an answer has closed, at once; return how many were open still.

        Whatever lies before that answer in its partition was read with it, so that nothing is
        waited for. What is missed here closes when its windows are over, and ends the same.

        Raises:
            FencedError: another worker closed one of them; nothing was written.
        """
        with self.database.transaction() as session:
            rows = fetch_open(session, keys, is_judged=self._is_judged)
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

    @property
    def _is_judged(self) -> bool:
        return bool(self.metrics.judges)

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

    def _close(self, session: Session, rows: list[Closable]) -> None:
        votes = _votes(session, rows)
        ends: list[ClosedAs] = []
        experiences: list[Experience] = []
        revisions: list[NewRevision] = []
        cases = {(row.tenant, row.interaction_id): _case(row, votes) for row in rows}
        closings, wanted = close_all(session, cases.values(), self.metrics, self.verifiers)
        for key, closing in closings.items():
            reason = None if closing.reason is None else closing.reason.value
            ends.append(ClosedAs(key, closing.state.value, reason))
            if closing.experience is not None:
                experiences.append(closing.experience)
                case = cases[key]
                closed = Closed(closing.experience, case.event.content.completion, case.served_at)
                revisions += build_revisions(closed, votes, self.metrics)
        moment = self.now()
        mark_closed(session, ends, closed_at=moment)
        insert_experiences(session, experiences, created_at=moment)
        insert_revisions(session, revisions)
        want(session, wanted, now=moment, wait_s=self.judge_wait_s)


def _case(row: Closable, votes: StoredVotes) -> Case:
    about = votes.about(
        row.tenant, interaction_id=row.interaction_id, trajectory_id=row.trajectory_id
    )
    event = decode(InteractionServed, row.document or b"")
    return Case(event=event, served_at=row.appended_at, votes=about)


def _votes(session: Session, rows: list[Closable]) -> StoredVotes:
    targets = {(row.tenant, row.interaction_id) for row in rows}
    targets |= {(row.tenant, row.trajectory_id) for row in rows}
    return StoredVotes(fetch_by_target(session, targets))
