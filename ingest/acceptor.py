"""Takes feedback and interactions into the log: nothing is acknowledged before it is durable."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Generic, TypeVar

from ingest.api_errors import ProblemError, printable
from ingest.lookup import Lookup
from ingest.settings import IngestSettings
from tidemill.contracts.codec import MAX_EVENT_BYTES, encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, FeedbackReceived, InteractionServed
from tidemill.errors import EventLogError
from tidemill.eventlog.base import EventSink, Position
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.scoring import refusal

V = TypeVar("V")

RecordKey = tuple[str, str]
"""Tenant and id: what another tenant holds is never told."""


class Status(StrEnum):
    """What became of one record; the values are what callers read."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    """It can never be taken; do not send it again."""
    TOO_LARGE = "too_large"
    """The log could not hold it."""
    CONFLICT = "conflict"
    """Its id stands for another body."""
    RETRY = "retry"
    """It was not stored, as far as is known; send it again with the same id."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is answered for one record."""

    status: Status
    record_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record(Generic[V]):
    """What the log gets, and what tells a repeat from a conflict."""

    topic: str
    partition_key: str
    payload: bytes
    key: RecordKey
    fingerprint: V


@dataclass(slots=True, kw_only=True)
class Acceptor:
    """Checks, appends and waits; used on the event loop of one process."""

    settings: IngestSettings
    metrics: MetricsFile
    known_feedback: Lookup[RecordKey, str]
    """Body digests."""
    known_interactions: Lookup[RecordKey, bytes]
    """Bytes as stored."""
    sink: EventSink | None = None
    """None = the log cannot be reached."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    num_acknowledged: Counter[str] = field(default_factory=Counter)
    """By topic; read from another thread."""
    num_answered: Counter[str] = field(default_factory=Counter)
    """By status."""
    in_flight: int = 0

    async def take_feedback(self, events: Sequence[FeedbackReceived]) -> list[Outcome]:
        """Store feedback; return an outcome for each, in order.

        Raises:
            ProblemError: 429, too much is on its way.
        """
        return await self._take([self._feedback(event) for event in events], self.known_feedback)

    async def take_interactions(self, events: Sequence[InteractionServed]) -> list[Outcome]:
        """Store interactions; return an outcome for each, in order.

        Raises:
            ProblemError: 429, too much is on its way.
        """
        return await self._take([_interaction(event) for event in events], self.known_interactions)

    async def _take(
        self, records: Sequence[_Record[V] | Outcome], known: Lookup[RecordKey, V]
    ) -> list[Outcome]:
        good = [one for one in records if isinstance(one, _Record)]
        before = await known.find([one.key for one in good])
        first: dict[RecordKey, _Record[V]] = {}
        for one in good:
            if one.key not in before:
                first.setdefault(one.key, one)
        stored = dict(zip(first, await self._append(list(first.values())), strict=True))
        for key, is_stored in stored.items():
            if is_stored:
                known.remember(key, first[key].fingerprint)
        outcomes = [
            one if isinstance(one, Outcome) else _outcome(one, before, first, stored)
            for one in records
        ]
        self.num_answered.update(outcome.status.value for outcome in outcomes)
        return outcomes

    def _feedback(self, event: FeedbackReceived) -> _Record[str] | Outcome:
        metric = self.metrics.metrics.get(event.metric)
        if metric is None:
            declared = ", ".join(sorted(self.metrics.metrics))
            reason = f"metric {event.metric!r} is not declared; declared: {declared}"
            return Outcome(Status.REJECTED, event.feedback_id, printable(reason))
        why = refusal(metric, event.value, names_interaction=event.interaction_id is not None)
        if why is not None:
            return Outcome(Status.REJECTED, event.feedback_id, printable(f"{event.metric}: {why}"))
        return _Record(
            topic=FEEDBACK,
            partition_key=event.key,
            payload=encode(event),
            key=(event.tenant, event.feedback_id),
            fingerprint=event.body_digest,
        )

    async def _append(self, records: Sequence[_Record[V]]) -> list[bool]:
        if not records:
            return []
        if self.in_flight + len(records) > self.settings.max_in_flight:
            raise ProblemError(429, f"{self.in_flight} records are on their way; try again")
        if self.sink is None:
            return [False] * len(records)
        try:
            futures = [
                self.sink.append(one.topic, one.partition_key, one.payload) for one in records
            ]
        except EventLogError:
            return [False] * len(records)
        self.in_flight += len(futures)
        try:
            await _wait(futures, self.settings.append_timeout_s)
        finally:
            self.in_flight -= len(futures)
        stored = [_is_stored(future) for future in futures]
        for one, is_stored in zip(records, stored, strict=True):
            self.num_acknowledged[one.topic] += is_stored
        return stored


async def _wait(futures: Sequence[Future[Position]], timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    left = len(futures)

    def one_less() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not done.done():
            done.set_result(None)

    for future in futures:
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(one_less))
    try:
        await asyncio.wait_for(done, timeout_s)
    except TimeoutError:
        # What still waits for its turn is given up for good; the rest is unknown.
        for future in futures:
            future.cancel()


def _is_stored(future: Future[Position]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _interaction(event: InteractionServed) -> _Record[bytes] | Outcome:
    payload = encode(event)
    if len(payload) > MAX_EVENT_BYTES:
        reason = f"the event has {len(payload)} bytes; at most {MAX_EVENT_BYTES}"
        return Outcome(Status.TOO_LARGE, event.interaction_id, reason)
    return _Record(
        topic=INTERACTIONS,
        partition_key=event.key,
        payload=payload,
        key=(event.tenant, event.interaction_id),
        fingerprint=payload,
    )


def _outcome(
    record: _Record[V],
    before: Mapping[RecordKey, V],
    first: Mapping[RecordKey, _Record[V]],
    stored: Mapping[RecordKey, bool],
) -> Outcome:
    record_id = record.key[1]
    if record.key in before:
        return _known(record_id, same=before[record.key] == record.fingerprint)
    if not stored[record.key]:
        reason = "the log cannot store now; send it again with this id"
        return Outcome(Status.RETRY, record_id, reason)
    if first[record.key] is record:
        return Outcome(Status.ACCEPTED, record_id)
    return _known(record_id, same=first[record.key].fingerprint == record.fingerprint)


def _known(record_id: str, *, same: bool) -> Outcome:
    if same:
        return Outcome(Status.DUPLICATE, record_id)
    return Outcome(Status.CONFLICT, record_id, "this id is known with another body")
