import asyncio
import threading
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from ingest.acceptor import Acceptor, Outcome, Status, _Stream
from ingest.api_errors import ProblemError
from ingest.feedback_records import FeedbackRecord, RecordKey
from ingest.lookup import Lookup
from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tests.memory_log import MemoryLog
from tidemill.contracts.codec import encode
from tidemill.contracts.events import (
    FEEDBACK,
    INTERACTIONS,
    Content,
    FeedbackReceived,
    InteractionServed,
)
from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import Appended, EventSink, NewRecord, Position
from tidemill.rewards.metrics_file import parse_metrics


class BrokenSink:
    """Fails as the settings of a test say; never stores."""

    def __init__(self, *, closed: bool = False, hangs: bool = False) -> None:
        self.closed = closed
        self.hangs = hangs
        self.outcome: Appended = EventLogUnavailableError("down")
        self.futures: list[Future[list[Appended]]] = []

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        raise AssertionError(f"one by one costs too much: {topic} {key} {value!r}")

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        assert topic
        assert records
        if self.closed:
            raise EventLogError("closed")
        future: Future[list[Appended]] = Future()
        if not self.hangs:
            future.set_result([self.outcome] * len(records))
        self.futures.append(future)
        return future

    def close(self) -> None:
        pass


def acceptor(sink: EventSink | None, *, max_in_flight: int = 100) -> Acceptor:
    taker = Acceptor(
        settings=IngestSettings(max_in_flight=max_in_flight),
        metrics=parse_metrics(METRICS),
        known_feedback=Lookup(lambda _: {("default", "stored"): "a"}, size=10),
        known_interactions=Lookup(lambda _: {}, size=10),
    )
    taker.appends.sink = sink
    return taker


def take(taker: Acceptor, *events: FeedbackReceived) -> list[Status]:
    return [one.status for one in asyncio.run(taken(taker, *events))]


async def taken(
    taker: Acceptor, *events: FeedbackReceived, within_s: float = 0.05
) -> list[Outcome]:
    records = [record_of(event) for event in events]
    return await taker.take_feedback(records, deadline_s=soon(within_s))


async def taken_interactions(taker: Acceptor, *events: InteractionServed) -> list[Outcome]:
    return await taker.take_interactions(events, deadline_s=soon(30))


def soon(seconds: float = 0.05) -> float:
    return asyncio.get_running_loop().time() + seconds


def record_of(event: FeedbackReceived) -> FeedbackRecord:
    return FeedbackRecord(
        key=(event.tenant, event.feedback_id),
        record=NewRecord(event.trajectory_id, encode(event)),
        fingerprint=event.body_digest,
        metric=event.metric,
        value=event.value,
        names_interaction=event.interaction_id is not None,
        rater=event.rater,
    )


def test_what_is_stored_is_accepted_and_counted() -> None:
    log = MemoryLog()
    taker = acceptor(log.sink())
    assert take(taker, make_feedback(), make_feedback()) == [Status.ACCEPTED] * 2
    assert taker.num_acknowledged[FEEDBACK] == 2
    assert sum(bounds.end for bounds in log.bounds(FEEDBACK).values()) == 2


def test_repeats_are_told_from_conflicts() -> None:
    taker = acceptor(MemoryLog().sink())
    first = make_feedback(feedback_id="f", body_digest="a")
    assert take(taker, first) == [Status.ACCEPTED]
    assert take(taker, first) == [Status.DUPLICATE]
    assert take(taker, make_feedback(feedback_id="f", body_digest="b")) == [Status.CONFLICT]
    assert take(taker, make_feedback(feedback_id="stored", body_digest="a")) == [Status.DUPLICATE]
    assert taker.num_acknowledged[FEEDBACK] == 1


def test_a_repeat_within_one_batch_is_stored_once() -> None:
    log = MemoryLog()
    one = make_feedback(feedback_id="f", body_digest="a")
    other = make_feedback(feedback_id="f", body_digest="b")
    statuses = take(acceptor(log.sink()), one, one, other)
    assert statuses == [Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT]
    assert sum(bounds.end for bounds in log.bounds(FEEDBACK).values()) == 1


def test_what_can_never_be_taken_is_rejected_before_it_is_stored() -> None:
    taker = acceptor(None)
    unknown = make_feedback(metric="nobody")
    assert take(taker, unknown, make_feedback(value=0.5)) == [Status.REJECTED] * 2


@pytest.mark.parametrize("sink", [None, BrokenSink(), BrokenSink(closed=True)])
def test_a_log_that_stores_nothing_means_try_again(sink: EventSink | None) -> None:
    taker = acceptor(sink)
    one = make_feedback(feedback_id="f")
    assert take(taker, one, one) == [Status.RETRY] * 2
    assert taker.num_acknowledged[FEEDBACK] == 0
    assert taker.known_feedback.recall(("default", "f")) is None


def test_a_log_that_does_not_answer_is_given_up_in_time() -> None:
    sink = BrokenSink(hangs=True)
    taker = acceptor(sink)
    assert take(taker, make_feedback()) == [Status.RETRY]
    assert all(future.cancelled() for future in sink.futures)
    assert taker.room.num_records == 0


def test_too_much_at_once_is_refused_as_a_whole() -> None:
    taker = acceptor(MemoryLog().sink(), max_in_flight=1)
    with pytest.raises(ProblemError) as caught:
        take(taker, make_feedback(), make_feedback())
    assert caught.value.status == 429


def test_interactions_are_told_apart_by_their_bytes() -> None:
    log = MemoryLog()
    taker = acceptor(log.sink())
    event = make_interaction()

    def once(one: InteractionServed) -> Outcome:
        (outcome,) = asyncio.run(taken_interactions(taker, one))
        return outcome

    assert once(event).status is Status.ACCEPTED
    assert once(event).status is Status.DUPLICATE
    assert once(event.model_copy(update={"turn": 4})).status is Status.CONFLICT
    assert taker.num_acknowledged[INTERACTIONS] == 1


def test_an_interaction_that_the_log_could_not_hold_is_too_large() -> None:
    event = make_interaction(content=Content(messages=(), completion="x" * (1 << 20)))
    assert len(encode(event)) > 1 << 20
    taker = acceptor(MemoryLog().sink())
    outcomes = asyncio.run(taken_interactions(taker, event, make_interaction()))
    assert [one.status for one in outcomes] == [Status.TOO_LARGE, Status.ACCEPTED]


def at_once(taker: Acceptor, sink: BrokenSink, *events: FeedbackReceived) -> list[Status]:
    """Send each in a request of its own; the log answers the first when all are there."""

    async def together() -> list[Status]:
        requests = [asyncio.create_task(taken(taker, event, within_s=30)) for event in events]
        while not sink.futures:
            await asyncio.sleep(0)
        (future,) = sink.futures
        future.set_result([sink.outcome])
        answers = [await request for request in requests]
        return [outcome.status for (outcome,) in answers]

    return asyncio.run(together())


def test_of_many_bodies_under_one_id_at_once_one_is_taken() -> None:
    sink = BrokenSink(hangs=True)
    sink.outcome = MemoryLog().sink().append(FEEDBACK, "k", b"").result()
    one, *others = (make_feedback(feedback_id="f", body_digest=digest) for digest in "abc")
    taker = acceptor(sink)
    statuses = at_once(taker, sink, one, one, *others)
    expected = [Status.ACCEPTED, Status.DUPLICATE, Status.CONFLICT, Status.CONFLICT]
    assert statuses == expected
    assert taker.num_acknowledged[FEEDBACK] == 1
    # Nothing is left behind, and only memory is asked from here on.
    assert take(taker, *others) == [Status.CONFLICT] * 2


def test_when_the_first_of_an_id_fails_all_may_come_again() -> None:
    sink = BrokenSink(hangs=True)
    one, other = (make_feedback(feedback_id="f", body_digest=digest) for digest in "ab")
    taker = acceptor(sink)
    assert at_once(taker, sink, one, one, other) == [Status.RETRY] * 3
    taker.appends.sink = MemoryLog().sink()
    assert take(taker, other) == [Status.ACCEPTED]


def test_nobody_waits_longer_for_another_request_than_for_the_log() -> None:
    taker = acceptor(BrokenSink(hangs=True))
    event = make_feedback(feedback_id="f")

    async def second_of_two() -> Status:
        # It was begun by somebody who never comes to an end.
        taker._feedback.under_way.begin([("default", "f")])
        (outcome,) = await taken(taker, event)
        return outcome.status

    assert asyncio.run(second_of_two()) is Status.RETRY


def test_a_batch_waits_only_for_what_others_are_taking() -> None:
    taker = acceptor(MemoryLog().sink())
    events = [make_feedback(feedback_id=name, body_digest="a") for name in "fg"]

    async def both() -> list[list[Outcome]]:
        return await asyncio.gather(
            taken(taker, *events, within_s=30), taken(taker, *events[::-1], within_s=30)
        )

    first, second = asyncio.run(both())
    assert [one.status for one in first] == [Status.ACCEPTED] * 2
    assert [one.status for one in second] == [Status.DUPLICATE] * 2


def test_the_wait_for_the_look_up_and_for_the_log_have_one_end() -> None:
    answered = threading.Event()

    def fetch(_: Collection[RecordKey]) -> dict[RecordKey, str]:
        answered.wait(30)
        return {}

    sink = BrokenSink(hangs=True)
    taker = acceptor(sink)
    taker._feedback = _Stream(FEEDBACK, Lookup(fetch, size=0, timeout_s=0.05))
    ends: list[float] = []

    async def once() -> list[Outcome]:
        loop = asyncio.get_running_loop()
        call_at = loop.call_at

        def noted(when: float, *rest: Any, **more: Any) -> Any:
            ends.append(when)
            return call_at(when, *rest, **more)

        deadline_s = soon(0.2)
        loop.call_at = noted  # type: ignore[method-assign]
        request = asyncio.create_task(
            taker.take_feedback([record_of(make_feedback())], deadline_s=deadline_s)
        )
        await asyncio.sleep(0)
        # It counts from before the look-up.
        assert taker.room.num_records == 1
        outcomes = await request
        answered.set()
        assert max(ends) == deadline_s
        return outcomes

    (outcome,) = asyncio.run(once())
    assert outcome.status is Status.RETRY
    assert len(sink.futures) == 1
    assert taker.room.num_records == 0
