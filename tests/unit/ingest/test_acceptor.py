import asyncio
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from ingest.acceptor import Acceptor, Outcome, Status
from ingest.api_errors import ProblemError
from ingest.feedback_records import FeedbackRecord
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
            future.set_result([EventLogUnavailableError("down")] * len(records))
        self.futures.append(future)
        return future

    def close(self) -> None:
        pass


def acceptor(sink: EventSink | None, *, max_in_flight: int = 100) -> Acceptor:
    taker = Acceptor(
        settings=IngestSettings(append_timeout_s=0.05, max_in_flight=max_in_flight),
        metrics=parse_metrics(METRICS),
        known_feedback=Lookup(lambda _: {("default", "stored"): "a"}, size=10),
        known_interactions=Lookup(lambda _: {}, size=10),
    )
    taker.appends.sink = sink
    return taker


def take(taker: Acceptor, *events: FeedbackReceived) -> list[Status]:
    records = [record_of(event) for event in events]
    return [one.status for one in asyncio.run(taker.take_feedback(records))]


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
    assert taker.in_flight == 0


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
        (outcome,) = asyncio.run(taker.take_interactions([one]))
        return outcome

    assert once(event).status is Status.ACCEPTED
    assert once(event).status is Status.DUPLICATE
    assert once(event.model_copy(update={"turn": 4})).status is Status.CONFLICT
    assert taker.num_acknowledged[INTERACTIONS] == 1


def test_an_interaction_that_the_log_could_not_hold_is_too_large() -> None:
    event = make_interaction(content=Content(messages=(), completion="x" * (1 << 20)))
    assert len(encode(event)) > 1 << 20
    taken = asyncio.run(acceptor(MemoryLog().sink()).take_interactions([event, make_interaction()]))
    assert [one.status for one in taken] == [Status.TOO_LARGE, Status.ACCEPTED]
