"""Appending to Kafka: an idempotent producer behind the sink's promise of a bounded wait."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import Position
from tidemill.eventlog.kafka_clients import MAX_MESSAGE_BYTES, client_options, connect
from tidemill.eventlog.topics import check_record, check_topic
from tidemill.settings import KafkaLogSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Entry:
    topic: str
    key: str
    value: bytes
    deadline: float
    future: Future[Position] = field(default_factory=Future)


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
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._waiting: deque[_Entry] = deque()
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
        entry = _Entry(topic, key, value, time.monotonic() + self._timeout_s)
        entry.future.set_running_or_notify_cancel()
        try:
            check_topic(topic)
            check_record(topic, key, value)
        except EventLogError as error:
            entry.future.set_exception(error)
            return entry.future
        with self._lock:
            if self._closed.is_set():
                raise EventLogError("the sink is closed; append before close")
            self._waiting.append(entry)
            self._queue.put(entry)
        return entry.future

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

    def _send_all(self) -> None:
        while (entry := self._queue.get()) is not None:
            if entry.future.done():
                continue
            try:
                self._check_known(entry.topic)
                sent = self._live_producer().send(
                    entry.topic, key=entry.key.encode(), value=entry.value
                )
            except EventLogError as error:
                _fail(entry, error)
            except Exception as error:
                # The thread must live on, whatever one record met.
                self._refuse(entry, error)
            else:
                sent.add_callback(_acknowledge, entry)
                sent.add_errback(self._refuse, entry)

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

    def _refuse(self, entry: _Entry, error: BaseException) -> None:
        self._is_suspect.set()
        message = f"Kafka took no record for {entry.topic}: {error!r}"
        _fail(entry, EventLogUnavailableError(message))

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
                entry = self._waiting.popleft()
                if not entry.future.done():
                    self._is_suspect.set()
                    _fail(entry, self._too_late(entry))
            if self._closed.is_set() and not self._waiting:
                return
            time.sleep(0.02)

    def _too_late(self, entry: _Entry) -> EventLogUnavailableError:
        return EventLogUnavailableError(
            f"Kafka did not acknowledge a record for {entry.topic} within {self._timeout_s:g} s; "
            "it may still appear"
        )


def _connect(settings: KafkaLogSettings, timeout_s: float) -> KafkaProducer:
    timeout_ms = int(settings.append_timeout_s * 1000)
    return connect(
        KafkaProducer,
        client_options(settings)
        | {
            "bootstrap_timeout_ms": int(timeout_s * 1000),
            "acks": "all",
            "enable_idempotence": True,
            "compression_type": "zstd",
            "batch_size": 128 << 10,
            "max_request_size": MAX_MESSAGE_BYTES,
            "allow_auto_create_topics": False,
            "request_timeout_ms": timeout_ms,
            "delivery_timeout_ms": timeout_ms,
            "max_block_ms": timeout_ms,
            "metrics_enabled": False,
        },
    )


def _acknowledge(entry: _Entry, metadata: Any) -> None:
    place = Position(
        entry.topic, metadata.partition, metadata.offset, to_moment(metadata.timestamp)
    )
    with suppress(InvalidStateError):
        entry.future.set_result(place)


def _fail(entry: _Entry, error: EventLogError) -> None:
    # The first outcome counts; the other came too late.
    with suppress(InvalidStateError):
        entry.future.set_exception(error)


def to_moment(milliseconds: int) -> datetime:
    """Return a Kafka timestamp as aware UTC."""
    return _EPOCH + timedelta(milliseconds=milliseconds)
