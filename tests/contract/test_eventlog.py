"""What every event log promises; one suite, run against the embedded log and against Kafka."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from tests.stored_offsets import StoredOffsets
from tidemill.errors import EventLogError
from tidemill.eventlog.base import (
    EventLog,
    EventSource,
    NewRecord,
    Position,
    Record,
    TopicPartition,
)
from tidemill.eventlog.topics import MAX_RECORD_BYTES


@pytest.fixture
def topic(any_log: EventLog) -> str:
    """A topic of this test's own."""
    return new_topics(any_log, 1)[0]


def new_topics(log: EventLog, number: int) -> tuple[str, ...]:
    names = tuple(f"test.{uuid4().hex[:12]}" for _ in range(number))
    log.create_topics(names)
    return names


def append_all(log: EventLog, topic: str, pairs: list[tuple[str, bytes]]) -> list[Position]:
    sink = log.sink()
    futures = [sink.append(topic, key, value) for key, value in pairs]
    places = [future.result(timeout=20) for future in futures]
    sink.close()
    return places


def poll_until(source: EventSource, count: int, *, timeout_s: float = 20.0) -> list[Record]:
    records: list[Record] = []
    deadline = time.monotonic() + timeout_s
    while len(records) < count and time.monotonic() < deadline:
        records.extend(source.poll(max_records=100, timeout_s=0.2))
    return records


def test_a_record_comes_back_as_it_went_in(any_log: EventLog, topic: str) -> None:
    value = bytes(range(256))
    [place] = append_all(any_log, topic, [("schlüssel", value)])
    [record] = any_log.read(topic, place.partition, offset=place.offset, max_records=10)
    assert (record.key, record.value) == ("schlüssel", value)
    assert (record.topic, record.partition, record.offset) == (topic, place.partition, 0)
    assert record.appended_at == place.appended_at
    assert record.appended_at.utcoffset() is not None


def test_order_is_kept_within_a_partition_and_time_never_goes_back(
    any_log: EventLog, topic: str
) -> None:
    pairs = [(f"k{number % 7}", str(number).encode()) for number in range(500)]
    places = append_all(any_log, topic, pairs)
    by_key: dict[str, set[int]] = {}
    for (key, _), place in zip(pairs, places, strict=True):
        by_key.setdefault(key, set()).add(place.partition)
    assert all(len(partitions) == 1 for partitions in by_key.values())
    assert len({place.partition for place in places}) == 2
    for partition in (0, 1):
        records = any_log.read(topic, partition, offset=0, max_records=1000)
        numbers = [int(record.value) for record in records]
        assert numbers == sorted(numbers)
        assert [record.offset for record in records] == list(range(len(records)))
        times = [record.appended_at for record in records]
        assert times == sorted(times)


def test_an_acknowledged_record_can_be_read_at_once(any_log: EventLog, topic: str) -> None:
    sink = any_log.sink()
    for number in range(20):
        place = sink.append(topic, "k", str(number).encode()).result(timeout=20)
        [record] = any_log.read(topic, place.partition, offset=place.offset, max_records=1)
        assert record.value == str(number).encode()
    sink.close()


def test_closing_a_sink_waits_for_what_is_under_way(any_log: EventLog, topic: str) -> None:
    sink = any_log.sink()
    futures = [sink.append(topic, str(number), b"v") for number in range(100)]
    sink.close()
    assert all(future.done() and future.exception() is None for future in futures)
    assert sum(bounds.end for bounds in any_log.bounds(topic).values()) == 100
    with pytest.raises(EventLogError, match="closed"):
        sink.append(topic, "k", b"v")
    sink.close()


def test_bounds_count_what_a_partition_holds(any_log: EventLog, topic: str) -> None:
    assert {n: (b.first, b.end) for n, b in any_log.bounds(topic).items()} == {0: (0, 0), 1: (0, 0)}
    places = append_all(any_log, topic, [(str(number), b"v") for number in range(30)])
    counts = Counter(place.partition for place in places)
    assert {n: (b.first, b.end) for n, b in any_log.bounds(topic).items()} == {
        0: (0, counts[0]),
        1: (0, counts[1]),
    }


def test_without_a_declared_retention_nothing_is_removed(any_log: EventLog, topic: str) -> None:
    append_all(any_log, topic, [(str(number), b"v") for number in range(30)])
    held = any_log.bounds(topic)
    ends = {number: bounds.end for number, bounds in held.items()}
    assert any_log.retain(topic, ends, now=datetime(2100, 1, 1, tzinfo=UTC)) == 0
    assert any_log.bounds(topic) == held


def test_reading_stops_at_its_limit_and_at_the_end(any_log: EventLog, topic: str) -> None:
    places = append_all(any_log, topic, [("k", str(number).encode()) for number in range(10)])
    partition = places[0].partition
    records = any_log.read(topic, partition, offset=4, max_records=3)
    assert [record.offset for record in records] == [4, 5, 6]
    assert [r.offset for r in any_log.read(topic, partition, offset=8, max_records=9)] == [8, 9]
    assert any_log.read(topic, partition, offset=10, max_records=5) == []
    assert any_log.read(topic, 77, offset=0, max_records=5) == []


def test_an_unknown_topic_is_refused_by_name(any_log: EventLog) -> None:
    sink = any_log.sink()
    with pytest.raises(EventLogError, match=r"no topic 'test\.unknown'"):
        sink.append("test.unknown", "k", b"v").result(timeout=20)
    sink.close()
    with pytest.raises(EventLogError, match=r"no topic 'test\.unknown'"):
        any_log.bounds("test.unknown")
    with pytest.raises(EventLogError, match=r"no topic 'test\.unknown'"):
        any_log.read("test.unknown", 0, offset=0, max_records=1)
    with pytest.raises(EventLogError, match=r"no topic 'test\.unknown'"):
        any_log.source(("test.unknown",), group="g", positions=lambda _: None)
    with pytest.raises(EventLogError, match="not a topic"):
        any_log.create_topics(("../escape",))


def test_creating_a_topic_twice_changes_nothing(any_log: EventLog, topic: str) -> None:
    append_all(any_log, topic, [("k", b"v")])
    any_log.create_topics((topic,))
    assert sum(bounds.end for bounds in any_log.bounds(topic).values()) == 1


def test_the_largest_record_fits_and_a_larger_one_is_refused(any_log: EventLog, topic: str) -> None:
    # Random bytes, so that compression does not make it small.
    largest = (uuid4().bytes * (MAX_RECORD_BYTES // 16))[:MAX_RECORD_BYTES]
    [place] = append_all(any_log, topic, [("k", largest)])
    [record] = any_log.read(topic, place.partition, offset=place.offset, max_records=1)
    assert record.value == largest
    source = any_log.source((topic,), group=uuid4().hex, positions=lambda _: None)
    [polled] = poll_until(source, 1)
    source.close()
    assert polled.value == largest
    with pytest.raises(EventLogError, match="at most"):
        append_all(any_log, topic, [("k", largest + b"x")])


def test_a_key_that_is_no_text_hurts_nobody_else(any_log: EventLog, topic: str) -> None:
    sink = any_log.sink()
    good, bad = sink.append(topic, "k", b"v"), sink.append(topic, "\ud800", b"v")
    with pytest.raises(EventLogError, match="no Unicode text"):
        bad.result(timeout=20)
    assert good.result(timeout=20).offset == 0
    sink.close()


def test_a_member_begins_where_the_loader_says(any_log: EventLog, topic: str) -> None:
    append_all(any_log, topic, [(f"k{n % 9}", b"v") for n in range(60)])
    positions = StoredOffsets({TopicPartition(topic, 0): 5})
    ends = {number: bounds.end for number, bounds in any_log.bounds(topic).items()}
    source = any_log.source((topic,), group=uuid4().hex, positions=positions.load)
    records = poll_until(source, 55)
    assert source.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    source.close()
    for partition, first in ((0, 5), (1, 0)):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(first, ends[partition]))


def test_rewinding_goes_back_to_what_is_stored(any_log: EventLog, topic: str) -> None:
    append_all(any_log, topic, [("k", str(number).encode()) for number in range(20)])
    positions = StoredOffsets()
    source = any_log.source((topic,), group=uuid4().hex, positions=positions.load)
    before = poll_until(source, 20)
    assert positions.store(before[:8])
    source.rewind()
    after = poll_until(source, 12)
    source.close()
    assert [record.value for record in after] == [record.value for record in before[8:]]


def test_a_poll_returns_at_most_what_was_asked_and_ends_at_its_timeout(
    any_log: EventLog, topic: str
) -> None:
    source = any_log.source((topic,), group=uuid4().hex, positions=lambda _: None)
    began = time.monotonic()
    assert source.poll(max_records=5, timeout_s=0.3) == []
    assert time.monotonic() - began < 3
    append_all(any_log, topic, [(str(number), b"v") for number in range(12)])
    sizes = []
    while sum(sizes) < 12:
        sizes.append(len(source.poll(max_records=5, timeout_s=5)))
    source.close()
    assert max(sizes) <= 5
    assert sum(sizes) == 12


def test_a_refusing_loader_loses_no_record(any_log: EventLog, topic: str) -> None:
    append_all(any_log, topic, [(str(number), b"v") for number in range(20)])
    failures = iter([True] * 3)

    def load(_: TopicPartition) -> int | None:
        if next(failures, False):
            raise LookupError("the database is away")
        return None

    source = any_log.source((topic,), group=uuid4().hex, positions=load)
    records: list[Record] = []
    refused = 0
    deadline = time.monotonic() + 20
    while len(records) < 20 and time.monotonic() < deadline:
        try:
            records.extend(source.poll(max_records=100, timeout_s=0.2))
        except LookupError:
            refused += 1
    source.close()
    assert refused == 3
    assert len(records) == 20


def test_partition_n_of_every_topic_goes_to_the_same_member(any_log: EventLog) -> None:
    topics = new_topics(any_log, 2)
    group = uuid4().hex
    members = [any_log.source(topics, group=group, positions=lambda _: None) for _ in range(2)]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(len(m.assignment()) != 2 for m in members):
        poll_together(members)
    numbers = []
    for member in members:
        assert {place.topic for place in member.assignment()} == set(topics)
        numbers.append({place.partition for place in member.assignment()})
    for member in members:
        member.close()
    assert sorted(map(tuple, numbers)) == [(0,), (1,)]


def poll_together(members: list[EventSource]) -> None:
    """Poll all members at once, as separate processes would."""
    threads = [
        threading.Thread(target=member.poll, kwargs={"max_records": 10, "timeout_s": 0.1})
        for member in members
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@dataclass
class Worker:
    """A consumer as a process of Tidemill is one: poll, store rows and offsets, again."""

    log: EventLog
    topic: str
    group: str
    positions: StoredOffsets
    stored: list[bytes]
    fenced: int = 0
    assigned: frozenset[TopicPartition] = frozenset()
    stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def leave(self) -> None:
        self.stop.set()
        self.thread.join(timeout=30)

    def _run(self) -> None:
        source = self.log.source((self.topic,), group=self.group, positions=self.positions.load)
        while not self.stop.is_set():
            records = source.poll(max_records=10, timeout_s=0.1)
            self.assigned = source.assignment()
            if not records:
                continue
            if self.positions.store(records):
                self.stored.extend(record.value for record in records)
            else:
                self.fenced += 1
                source.rewind()
        source.close()


def test_members_share_the_work_and_a_rebalance_loses_and_doubles_nothing(
    any_log: EventLog, topic: str
) -> None:
    positions, stored, group = StoredOffsets(), [], uuid4().hex
    workers = [Worker(any_log, topic, group, positions, stored) for _ in range(2)]
    sink = any_log.sink()
    sent: list[bytes] = []

    def send(count: int) -> None:
        for _ in range(count):
            value = str(len(sent)).encode()
            sent.append(value)
            sink.append(topic, f"k{len(sent) % 11}", value)

    def send_until(settled: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not settled():
            assert time.monotonic() < deadline, [worker.assigned for worker in workers]
            send(5)
            time.sleep(0.02)

    workers[0].start()
    send(200)
    workers[1].start()
    send_until(lambda: all(len(worker.assigned) == 1 for worker in workers))
    workers[0].leave()
    send_until(lambda: len(workers[1].assigned) == 2)
    send(100)
    sink.close()
    deadline = time.monotonic() + 30
    while len(stored) < len(sent) and time.monotonic() < deadline:
        time.sleep(0.02)
    workers[1].leave()
    assert Counter(stored) == Counter(sent)


def test_records_that_are_handed_over_together_are_told_one_by_one(
    any_log: EventLog, topic: str
) -> None:
    sink = any_log.sink()
    good = [NewRecord("k", str(number).encode()) for number in range(20)]
    too_large = NewRecord("k", bytes(MAX_RECORD_BYTES + 1))
    outcomes = sink.append_all(topic, [*good[:10], too_large, *good[10:]]).result(timeout=20)
    assert sink.append_all(topic, []).result(timeout=20) == []
    sink.close()
    refused = outcomes.pop(10)
    assert isinstance(refused, EventLogError)
    assert "at most" in str(refused)
    places = [one for one in outcomes if isinstance(one, Position)]
    assert len(places) == len(good)
    assert [one.offset for one in places] == sorted(one.offset for one in places)
    (partition,) = {one.partition for one in places}
    stored = any_log.read(topic, partition, offset=places[0].offset, max_records=100)
    assert [record.value for record in stored] == [record.value for record in good]


def test_nothing_is_handed_over_together_after_close(any_log: EventLog, topic: str) -> None:
    sink = any_log.sink()
    sink.close()
    with pytest.raises(EventLogError, match="closed"):
        sink.append_all(topic, [NewRecord("k", b"v")])
