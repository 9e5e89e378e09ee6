"""Appending to Kafka: an idempotent producer behind the sink's promise of a bounded wait."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.appending import find_flaws, settle_one
from tidemill.eventlog.base import Appended, NewRecord, Position
from tidemill.eventlog.kafka_clients import MAX_MESSAGE_BYTES, connect
from tidemill.eventlog.topics import check_topic
from tidemill.settings import KafkaLogSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Group:
    """What one call wants to have stored; the first outcome of each record counts."""

    def __init__(
        self, topic: str, records: Sequence[NewRecord], *, deadline: float, future: Future[Any]
    ) -> None:
        self.topic = topic
        self.records = records
        self.deadline = deadline
        self.future = future
        self._outcomes: list[Appended | None] = [None] * len(records)
        self._left = len(records)
        self._lock = threading.Lock()

    def is_settled(self, index: int) -> bool:
        return self._outcomes[index] is not None

    def settle(self, index: int, outcome: Appended) -> None:
        with self._lock:
            if self._outcomes[index] is not None:
                return
            self._outcomes[index] = outcome
            self._left -= 1
            if self._left > 0:
                return
        self.finish([one for one in self._outcomes if one is not None])

    def settle_rest(self, error: EventLogError) -> None:
        for index in range(len(self.records)):
            self.settle(index, error)

    def finish(self, outcomes: list[Appended]) -> None:
        self.future.set_result(outcomes)


class _Single(_Group):
    """One record with a future of its own."""

    def finish(self, outcomes: list[Appended]) -> None:
        settle_one(self.future, outcomes[0])


class KafkaSink:
    """Implements `EventSink`; `append` never blocks, not even without a broker.

    One thread hands records to the producer in their order (its `send` may wait for metadata), one
    fails what was not acknowledged in time. After a failure the producer is replaced: one whose
    batch ran out of time while its broker was away may never recover by itself.
    """

    def __init__(self, settings: KafkaLogSettings, has_topic: Callable[[str], bool]) -> None:
        """Connect.

        Args:
            settings: the broker and the longest wait for an acknowledgement.
            has_topic: asks the cluster; raises `EventLogUnavailableError`.

        Raises:
            EventLogUnavailableError: no broker answers.
        """
        self._settings = settings
        self._timeout_s = settings.append_timeout_s
        self._has_topic = has_topic
        self._topics: set[str] = set()
        self._producer: KafkaProducer | None = _connect(settings, settings.connect_timeout_s)
        self._is_suspect = threading.Event()
        self._queue: queue.SimpleQueue[_Group | None] = queue.SimpleQueue()
        self._waiting: deque[_Group] = deque()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._sender = threading.Thread(target=self._send_all, name="kafka-sender", daemon=True)
        self._watch = threading.Thread(target=self._watch_all, name="kafka-deadlines", daemon=True)
        self._sender.start()
        self._watch.start()

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        """Append a record; the future is done once all in-sync replicas have it.

        The future fails with `EventLogUnavailableError` without an acknowledgement in time (the
        record may still appear later), with another `EventLogError` when the topic does not exist
        or the record is too large.
        """
        future: Future[Position] = Future()
        self._put(_Single(topic, [NewRecord(key, value)], deadline=self._deadline(), future=future))
        return future

    def append_all(self, topic: str, records: Sequence[NewRecord]) -> Future[list[Appended]]:
        """Append records of one topic, in order; the future is done once all are settled."""
        future: Future[list[Appended]] = Future()
        if records:
            self._put(_Group(topic, records, deadline=self._deadline(), future=future))
        else:
            future.set_result([])
        return future

    def close(self) -> None:
        """Wait for what is under way, no longer than the declared time, then disconnect."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            self._queue.put(None)
        self._sender.join()
        self._disconnect(self._timeout_s)
        self._watch.join()

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout_s

    def _put(self, group: _Group) -> None:
        group.future.set_running_or_notify_cancel()
        try:
            check_topic(group.topic)
        except EventLogError as error:
            group.settle_rest(error)
            return
        for index, flaw in find_flaws(group.topic, group.records).items():
            group.settle(index, flaw)
        with self._lock:
            if self._closed.is_set():
                raise EventLogError("the sink is closed; append before close")
            self._waiting.append(group)
            self._queue.put(group)

    def _send_all(self) -> None:
        while (group := self._queue.get()) is not None:
            for index, record in enumerate(group.records):
                if not group.is_settled(index):
                    self._send(group, index, record)

    def _send(self, group: _Group, index: int, record: NewRecord) -> None:
        try:
            self._check_known(group.topic)
            sent = self._live_producer().send(
                group.topic, key=record.key.encode(), value=record.value
            )
        except EventLogError as error:
            group.settle(index, error)
        except Exception as error:
            # The thread must live on, whatever one record met.
            self._refuse(group, index, error)
        else:
            sent.add_callback(_acknowledge, group, index)
            sent.add_errback(self._refuse, group, index)

    def _live_producer(self) -> KafkaProducer:
        if self._is_suspect.is_set():
            self._disconnect(0.0)
        if self._producer is None:
            self._producer = _connect(self._settings, self._timeout_s)
            self._is_suspect.clear()
        return self._producer

    def _disconnect(self, timeout_s: float) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=timeout_s)
        except KafkaError:
            # Closing waits for its records first; those that are left have failed already.
            producer._sender.force_close()  # noqa: SLF001
            with suppress(KafkaError):
                producer.close(timeout=1.0)

    def _refuse(self, group: _Group, index: int, error: BaseException) -> None:
        self._is_suspect.set()
        message = f"Kafka took no record for {group.topic}: {error!r}"
        group.settle(index, EventLogUnavailableError(message))

    def _check_known(self, topic: str) -> None:
        if topic in self._topics:
            return
        if not self._has_topic(topic):
            raise EventLogError(f"no topic {topic!r} in Kafka; create_topics makes it")
        self._topics.add(topic)

    def _watch_all(self) -> None:
        while True:
            now = time.monotonic()
            while self._waiting and (
                self._waiting[0].future.done() or self._waiting[0].deadline <= now
            ):
                group = self._waiting.popleft()
                if not group.future.done():
                    self._is_suspect.set()
                    group.settle_rest(self._too_late(group.topic))
            if self._closed.is_set() and not self._waiting:
                return
            time.sleep(0.02)

    def _too_late(self, topic: str) -> EventLogUnavailableError:
        return EventLogUnavailableError(
            f"Kafka did not acknowledge a record for {topic} within {self._timeout_s:g} s; "
            "it may still appear"
        )


def _connect(settings: KafkaLogSettings, timeout_s: float) -> KafkaProducer:
    timeout_ms = int(settings.append_timeout_s * 1000)
    return connect(
        KafkaProducer,
        settings,
        {
            "bootstrap_timeout_ms": int(timeout_s * 1000),
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": "zstd",
            # Callers wait for each record. Under load batches fill by themselves.
            "linger_ms": 0,
            "batch_size": 128 << 10,
            "max_request_size": MAX_MESSAGE_BYTES,
            "allow_auto_create_topics": False,
            "request_timeout_ms": timeout_ms,
            "delivery_timeout_ms": timeout_ms,
            "max_block_ms": timeout_ms,
            "metrics_enabled": False,
        },
    )


def _acknowledge(group: _Group, index: int, metadata: Any) -> None:
    moment = to_moment(metadata.timestamp)
    group.settle(index, Position(group.topic, metadata.partition, metadata.offset, moment))


def to_moment(milliseconds: int) -> datetime:
    """Return a Kafka timestamp as aware UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
