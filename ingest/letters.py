"""What an operator does about dead letters: replay one that has been repaired, or drop it.

A replay appends the record to its topic again, where the worker takes it like any other. Nothing is
taken out of the ledger: the letter goes on standing for its own record, and the new record counts.
"""

from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ingest.decoding import Unusable, decode_feedback, decode_interaction
from ingest.joining import FeedbackState
from tidemill.contracts.codec import decode
from tidemill.contracts.events import (
    INTERACTIONS,
    DeadLetterReason,
    FeedbackReceived,
    InteractionServed,
)
from tidemill.errors import ContractError, EventLogUnavailableError
from tidemill.eventlog.base import EventSink, Position, Record
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.database import Database, Session
from tidemill.storage.dead_letters import LetterPlace, LetterState, fetch_dead_letter
from tidemill.storage.feedback import fetch_feedback, fetch_known_digests
from tidemill.storage.interactions import fetch_known_documents, fetch_served_at
from tidemill.storage.tables import DeadLetterRow

APPEND_TIMEOUT_S = 20.0
"""An operator waits longer for the log than a user would, and less than a transaction may last."""

_BEGUN = "a replay has begun"
"""Reason of an open letter whose record may have been appended."""


class Ending(StrEnum):
    """What became of one request about a dead letter."""

    REPLAYED = "replayed"
    DROPPED = "dropped"
    REFUSED = "refused"
    """Nothing was changed."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The answer about one dead letter."""

    place: LetterPlace
    ending: Ending
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Clerk:
    """Handles dead letters on behalf of somebody."""

    database: Database
    metrics: MetricsFile
    actor: str

    def replay(self, place: LetterPlace, sink: EventSink, *, now: datetime) -> Handled:
        """Append a dead letter's record to its topic again, unless it would only die again.

        It is noted on the letter before the append that a replay begins, and after it that it is
        done: a crash in between leaves it open, nobody can drop it, since its record may be on its
        way to the worker, and a second replay is a repeated delivery.

        Raises:
            EventLogUnavailableError: the log did not take it; the letter stays open.
            StorageError: the database refused; the record may have been appended.
        """
        with self.database.transaction() as session:
            row = _fetch_open(session, place)
            if isinstance(row, Handled):
                return row
            key = self._key_if_repaired(session, row)
            if isinstance(key, Unusable):
                return Handled(place, Ending.REFUSED, f"still {key.reason.value}: {key.detail}")
            row.closed_by, row.closed_reason = self.actor, _BEGUN
        # The lock keeps a second operator waiting, who then finds the letter closed.
        with self.database.transaction() as session:
            row = _fetch_open(session, place)
            if isinstance(row, Handled):
                return row
            position = _wait(sink.append(row.topic, key, row.payload))
            detail = f"appended as {row.topic}/{position.partition}/{position.offset}"
            self._close(row, LetterState.REPLAYED, detail, now)
        return Handled(place, Ending.REPLAYED, detail)

    def drop(self, place: LetterPlace, *, reason: str, now: datetime) -> Handled:
        """Close a dead letter for good; it stays where it is and counts as a dead letter.

        One whose record came again and counts, or may be on its way there, is refused, or it would
        count twice.

        Raises:
            StorageError: the database refused; nothing changed.
        """
        with self.database.transaction() as session:
            row = _fetch_open(session, place)
            if isinstance(row, Handled):
                return row
            if _counts_elsewhere(session, row):
                detail = "its record came again and counts; replay it, which closes it"
                return Handled(place, Ending.REFUSED, detail)
            if row.closed_reason == _BEGUN and self._is_repaired(session, row):
                detail = f"{row.closed_by} began to replay it; replay it, which closes it"
                return Handled(place, Ending.REFUSED, detail)
            self._close(row, LetterState.DROPPED, reason, now)
        return Handled(place, Ending.DROPPED, reason)

    def _close(self, row: DeadLetterRow, state: LetterState, reason: str, now: datetime) -> None:
        row.state = state.value
        row.closed_at = now
        row.closed_by = self.actor
        row.closed_reason = reason

    def _is_repaired(self, session: Session, row: DeadLetterRow) -> bool:
        # Otherwise the appended record can only become a dead letter of its own.
        return not isinstance(self._key_if_repaired(session, row), Unusable)

    def _key_if_repaired(self, session: Session, row: DeadLetterRow) -> str | Unusable:
        kind = InteractionServed if row.topic == INTERACTIONS else FeedbackReceived
        try:
            key = decode(kind, row.payload).key
        except ContractError as error:
            return Unusable(DeadLetterReason.UNDECODABLE, str(error))
        # Under its own key, whatever the record had: that repairs a wrong one.
        record = Record(row.topic, row.partition, row.log_offset, key, row.payload, row.appended_at)
        flaw = (
            _interaction_flaw(session, record)
            if row.topic == INTERACTIONS
            else self._feedback_flaw(session, record, row.reason)
        )
        return key if flaw is None else flaw

    def _feedback_flaw(self, session: Session, record: Record, reason: str) -> Unusable | None:
        event = decode_feedback(record, self.metrics)
        if isinstance(event, Unusable):
            return event
        name = (event.tenant, event.feedback_id)
        known = fetch_known_digests(session, {name}).get(name, event.body_digest)
        if known != event.body_digest:
            return _CONFLICT
        if reason != DeadLetterReason.UNMATCHED.value:
            return None
        served = fetch_served_at(
            session,
            interactions={(event.tenant, event.target_id)},
            trajectories=() if event.interaction_id else {(event.tenant, event.trajectory_id)},
        )
        if served:
            return None
        return Unusable(DeadLetterReason.UNMATCHED, f"no interaction {event.target_id} yet")


_CONFLICT = Unusable(
    DeadLetterReason.CONFLICTING_BODY, "its id is known with another body; the first one stands"
)


def _interaction_flaw(session: Session, record: Record) -> Unusable | None:
    event = decode_interaction(record)
    if isinstance(event, Unusable):
        return event
    key = (event.tenant, event.interaction_id)
    stored = fetch_known_documents(session, {key}).get(key)
    return _CONFLICT if stored is not None and stored != record.value else None


def _counts_elsewhere(session: Session, row: DeadLetterRow) -> bool:
    """Tell whether the same record lives: an operator was stopped before he could mark this one."""
    if row.tenant is None or row.record_id is None:
        return False
    if row.topic == INTERACTIONS:
        key = (row.tenant, row.record_id)
        return fetch_known_documents(session, {key}).get(key) == row.payload
    stored = fetch_feedback(session, tenant=row.tenant, feedback_id=row.record_id)
    if stored is None or stored.state == FeedbackState.DEAD_LETTERED.value:
        return False
    try:
        return decode(FeedbackReceived, row.payload).body_digest == stored.body_digest
    except ContractError:
        return False


def _fetch_open(session: Session, place: LetterPlace) -> DeadLetterRow | Handled:
    """Return a dead letter that is open, locked, or the refusal of what is none."""
    row = fetch_dead_letter(session, place, for_update=True)
    if row is None:
        why = "no such dead letter; see `tidemill dead-letters list`"
        return Handled(place, Ending.REFUSED, why)
    if row.state == LetterState.OPEN.value:
        return row
    when = "" if row.closed_at is None else f" at {row.closed_at:%F %T}Z by {row.closed_by}"
    return Handled(place, Ending.REFUSED, f"it is {row.state} already{when}")


def _wait(future: Future[Position]) -> Position:
    try:
        return future.result(APPEND_TIMEOUT_S)
    except TimeoutError as error:
        raise EventLogUnavailableError(
            f"the log took no record within {APPEND_TIMEOUT_S:g} s; the letter stays open"
        ) from error
