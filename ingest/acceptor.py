"""Takes feedback and interactions into the log: nothing is acknowledged before it is durable."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from ingest.api_errors import ProblemError, printable
from ingest.lookup import Lookup
from ingest.settings import IngestSettings
from tidemill.contracts.codec import MAX_EVENT_BYTES, encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, FeedbackReceived, InteractionServed
from tidemill.errors import EventLogError
from tidemill.eventlog.base import EventSink, Position
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.scoring import refusal

FeedbackKey = tuple[str, str]


class Status(StrEnum):
    """What became of one record; the values are what callers read."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    """It can never be taken; do not send it again."""
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


@dataclass(slots=True, kw_only=True)
class Acceptor:
    """Checks, appends and waits; used on the event loop of one process."""

    settings: IngestSettings
    metrics: MetricsFile
    known_feedback: Lookup[FeedbackKey, str]
    """Body digests."""
    known_interactions: Lookup[str, bytes]
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
        digests = await self.known_feedback.find([_key(event) for event in events])
        outcomes: list[Outcome | None] = [self._early(event, digests) for event in events]
        first: dict[FeedbackKey, int] = {}
        to_store: list[int] = []
        for index, event in enumerate(events):
            if outcomes[index] is None and first.setdefault(_key(event), index) == index:
                to_store.append(index)
        records = [(FEEDBACK, events[i].key, encode(events[i])) for i in to_store]
        stored = await self._append(records)
        for index, ok in zip(to_store, stored, strict=True):
            event = events[index]
            outcomes[index] = _stored(event.feedback_id, ok)
            if ok:
                self.known_feedback.remember(_key(event), event.body_digest)
        for index, event in enumerate(events):
            if outcomes[index] is None:
                outcomes[index] = self._repeat_within(event, events[first[_key(event)]])
        return self._counted([outcome for outcome in outcomes if outcome is not None])

    async def take_interaction(self, event: InteractionServed) -> Outcome:
        """Store one interaction.

        Raises:
            ProblemError: 413, it is too large for the log; 429, too much is on its way.
        """
        payload = encode(event)
        if len(payload) > MAX_EVENT_BYTES:
            raise ProblemError(
                413, f"the event has {len(payload)} bytes; at most {MAX_EVENT_BYTES}"
            )
        known = await self.known_interactions.find([event.interaction_id])
        stored = known.get(event.interaction_id)
        if stored is not None:
            outcome = _known(event.interaction_id, same=stored == payload)
        else:
            (ok,) = await self._append([(INTERACTIONS, event.key, payload)])
            outcome = _stored(event.interaction_id, ok)
            if ok:
                self.known_interactions.remember(event.interaction_id, payload)
        return self._counted([outcome])[0]

    def _early(self, event: FeedbackReceived, digests: dict[FeedbackKey, str]) -> Outcome | None:
        metric = self.metrics.metrics.get(event.metric)
        if metric is None:
            declared = ", ".join(sorted(self.metrics.metrics))
            reason = f"metric {event.metric!r} is not declared; declared: {declared}"
            return Outcome(Status.REJECTED, event.feedback_id, printable(reason))
        why = refusal(metric, event.value, names_interaction=event.interaction_id is not None)
        if why is not None:
            return Outcome(Status.REJECTED, event.feedback_id, printable(f"{event.metric}: {why}"))
        digest = digests.get(_key(event))
        if digest is None:
            return None
        return _known(event.feedback_id, same=digest == event.body_digest)

    def _repeat_within(self, event: FeedbackReceived, first: FeedbackReceived) -> Outcome:
        if self.known_feedback.recall(_key(event)) is None:
            return _stored(event.feedback_id, False)
        return _known(event.feedback_id, same=event.body_digest == first.body_digest)

    async def _append(self, records: Sequence[tuple[str, str, bytes]]) -> list[bool]:
        if not records:
            return []
        if self.in_flight + len(records) > self.settings.max_in_flight:
            raise ProblemError(429, f"{self.in_flight} records are on their way; try again")
        if self.sink is None:
            return [False] * len(records)
        try:
            futures = [self.sink.append(*record) for record in records]
        except EventLogError:
            return [False] * len(records)
        self.in_flight += len(futures)
        try:
            await _wait(futures, self.settings.append_timeout_s)
        finally:
            self.in_flight -= len(futures)
        stored = [_is_stored(future) for future in futures]
        for (topic, _, _), ok in zip(records, stored, strict=True):
            self.num_acknowledged[topic] += ok
        return stored

    def _counted(self, outcomes: list[Outcome]) -> list[Outcome]:
        self.num_answered.update(outcome.status.value for outcome in outcomes)
        return outcomes


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


def _key(event: FeedbackReceived) -> FeedbackKey:
    return (event.tenant, event.feedback_id)


def _known(record_id: str, *, same: bool) -> Outcome:
    if same:
        return Outcome(Status.DUPLICATE, record_id)
    return Outcome(Status.CONFLICT, record_id, "this id is known with another body")


def _stored(record_id: str, ok: bool) -> Outcome:
    if ok:
        return Outcome(Status.ACCEPTED, record_id)
    reason = "the log cannot store now; send it again with this id"
    return Outcome(Status.RETRY, record_id, reason)
