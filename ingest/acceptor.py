"""Takes feedback and interactions into the log: nothing is acknowledged before it is durable."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

from ingest.api_errors import printable
from ingest.appends import Appends
from ingest.feedback_records import FeedbackRecord, RecordKey
from ingest.lookup import Lookup
from ingest.room import Room
from ingest.settings import IngestSettings
from ingest.under_way import UnderWay
from tidemill.contracts.codec import MAX_EVENT_BYTES, encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, InteractionServed
from tidemill.eventlog.base import NewRecord
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.scoring import refusal

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


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


class Outcome(NamedTuple):
    """What is answered for one record."""

    status: Status
    record_id: str | None = None
    reason: str | None = None


class _Entry(Protocol[V_co]):
    """What the log gets, and what tells a repeat from a conflict."""

    @property
    def key(self) -> RecordKey:
        """Return whose record it is."""

    @property
    def record(self) -> NewRecord:
        """Return what the log gets."""

    @property
    def fingerprint(self) -> V_co:
        """Return what differs where the body does."""


class _Interaction(NamedTuple):
    key: RecordKey
    record: NewRecord
    fingerprint: bytes


@dataclass(frozen=True, slots=True)
class _Stream(Generic[V]):
    """Where records of one kind go, and what tells that one is there or on its way."""

    topic: str
    known: Lookup[RecordKey, V]
    under_way: UnderWay[RecordKey, V] = field(default_factory=UnderWay)


@dataclass(slots=True, kw_only=True)
class Acceptor:
    """Checks, appends and waits; used on the event loop of one process."""

    settings: IngestSettings
    metrics: MetricsFile
    known_feedback: Lookup[RecordKey, str]
    """Body digests."""
    known_interactions: Lookup[RecordKey, bytes]
    """Bytes as stored."""
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    num_acknowledged: Counter[str] = field(default_factory=Counter)
    """By topic; read from another thread."""
    num_answered: Counter[Status] = field(default_factory=Counter)
    """By status."""
    room: Room = field(init=False)
    appends: Appends = field(default_factory=Appends)
    _feedback: _Stream[str] = field(init=False)
    _interactions: _Stream[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._feedback = _Stream(FEEDBACK, self.known_feedback)
        self._interactions = _Stream(INTERACTIONS, self.known_interactions)
        self.room = Room(
            max_records=self.settings.max_in_flight, max_bytes=self.settings.max_in_flight_bytes
        )

    async def take_feedback(
        self, feedback: Sequence[FeedbackRecord], *, deadline_s: float
    ) -> list[Outcome]:
        """Store feedback; return an outcome for each, in order.

        Nobody waits beyond the deadline, which is a time of the loop's clock.

        Raises:
            ProblemError: 429, too much is on its way.
        """
        entries = [self._refused(one) or one for one in feedback]
        return await self._take(self._feedback, entries, deadline_s)

    async def take_interactions(
        self, events: Sequence[InteractionServed], *, deadline_s: float
    ) -> list[Outcome]:
        """Store interactions; return an outcome for each, in order.

        Nobody waits beyond the deadline, which is a time of the loop's clock.

        Raises:
            ProblemError: 429, too much is on its way.
        """
        entries = [_interaction(event) for event in events]
        return await self._take(self._interactions, entries, deadline_s)

    async def _take(
        self, stream: "_Stream[V]", entries: Sequence[_Entry[V] | Outcome], deadline_s: float
    ) -> list[Outcome]:
        mine: dict[RecordKey, _Entry[V]] = {}
        for one in entries:
            if not isinstance(one, Outcome):
                mine.setdefault(one.key, one)
        theirs = stream.under_way.held(mine)
        for key in theirs:
            del mine[key]
        self.room.add_records(len(mine))
        claim = stream.under_way.begin(mine)
        stands: dict[RecordKey, V] = {}
        accepted: dict[RecordKey, _Entry[V]] = {}
        try:
            stands.update(await stream.known.find(mine))
            new = [one for key, one in mine.items() if key not in stands]
            are_durable = await self._append(stream.topic, new, deadline_s)
            accepted = {
                one.key: one for one, is_durable in zip(new, are_durable, strict=True) if is_durable
            }
            stored = {key: one.fingerprint for key, one in accepted.items()}
            stream.known.remember(stored)
            stands.update(stored)
        finally:
            self.room.num_records -= len(mine)
            stream.under_way.end(claim, stands)
        if theirs:
            stands = stands | await self._hear(theirs, deadline_s)
        outcomes = [
            one if isinstance(one, Outcome) else _outcome(one, accepted, stands) for one in entries
        ]
        self.num_answered.update([outcome.status for outcome in outcomes])
        return outcomes

    async def _hear(
        self,
        theirs: Mapping[RecordKey, "asyncio.Future[Mapping[RecordKey, V]]"],
        deadline_s: float,
    ) -> dict[RecordKey, V]:
        """Return what those ids stand for whose own requests have come to an end in time."""
        left_s = deadline_s - asyncio.get_running_loop().time()
        await asyncio.wait(set(theirs.values()), timeout=max(0.0, left_s))
        return {
            key: ended.result()[key]
            for key, ended in theirs.items()
            if ended.done() and key in ended.result()
        }

    def _refused(self, one: FeedbackRecord) -> Outcome | None:
        metric = self.metrics.metrics.get(one.metric)
        if metric is None:
            declared = ", ".join(sorted(self.metrics.metrics))
            reason = f"metric {one.metric!r} is not declared; declared: {declared}"
            return Outcome(Status.REJECTED, one.feedback_id, printable(reason))
        why = refusal(metric, one.value, names_interaction=one.names_interaction)
        if why is None:
            return None
        return Outcome(Status.REJECTED, one.feedback_id, printable(f"{one.metric}: {why}"))

    async def _append(
        self, topic: str, entries: Sequence[_Entry[V]], deadline_s: float
    ) -> list[bool]:
        if not entries:
            return []
        records = [one.record for one in entries]
        stored = await self.appends.append(topic, records, deadline_s)
        self.num_acknowledged[topic] += sum(stored)
        return stored


def _interaction(event: InteractionServed) -> _Interaction | Outcome:
    payload = encode(event)
    if len(payload) > MAX_EVENT_BYTES:
        reason = f"the event has {len(payload)} bytes; at most {MAX_EVENT_BYTES}"
        return Outcome(Status.TOO_LARGE, event.interaction_id, reason)
    key = (event.tenant, event.interaction_id)
    return _Interaction(key, NewRecord(event.key, payload), payload)


def _outcome(
    entry: _Entry[V], accepted: Mapping[RecordKey, _Entry[V]], stands: Mapping[RecordKey, V]
) -> Outcome:
    """Return what became of a record, beside the one that its id stands for, if there is one."""
    record_id = entry.key[1]
    if accepted.get(entry.key) is entry:
        return Outcome(Status.ACCEPTED, record_id)
    if entry.key not in stands:
        reason = "the log cannot store now; send it again with this id"
        return Outcome(Status.RETRY, record_id, reason)
    if stands[entry.key] == entry.fingerprint:
        return Outcome(Status.DUPLICATE, record_id)
    return Outcome(Status.CONFLICT, record_id, "this id is known with another body")
