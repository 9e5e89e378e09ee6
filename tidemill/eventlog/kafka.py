"""The log on Apache Kafka.

The broker stamps the append time (`LogAppendTime`); offsets of consumers live in SQL.
"""

import threading
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer

from tidemill.errors import EventLogError, EventLogUnavailableError
from tidemill.eventlog.base import Bounds, Drift, EventSink, EventSource, PositionLoader, Record
from tidemill.eventlog.kafka_clients import connect, kafka_errors
from tidemill.eventlog.kafka_security import security_options
from tidemill.eventlog.kafka_sink import KafkaSink
from tidemill.eventlog.kafka_source import KafkaSource, to_record
from tidemill.eventlog.kafka_topics import create_missing, find_drift, set_declared
from tidemill.eventlog.topics import check_topic
from tidemill.settings import KafkaLogSettings

_READ_TIMEOUT_S = 10.0


class KafkaLog:
    """Implements `EventLog`; thread-safe. Connects when first needed."""

    def __init__(self, settings: KafkaLogSettings) -> None:
        """Remember where the brokers are.

        Raises:
            ConfigurationError: a file of the security settings is missing or holds something else.
        """
        security_options(settings.security)
        self._settings = settings
        self._lock = threading.Lock()
        self._admin_client: KafkaAdminClient | None = None
        self._reader_client: KafkaConsumer | None = None

    def create_topics(self, topics: tuple[str, ...]) -> None:
        """Create what is missing; a topic that is there keeps its number of partitions.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: no broker answers, or it refuses.
        """
        for topic in topics:
            check_topic(topic)
        with self._lock, kafka_errors("creating topics"):
            create_missing(self._admin(), self._settings, topics)

    def find_drift(self, topics: tuple[str, ...]) -> list[Drift]:
        """Return where topics differ from what is declared.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: no broker answers, or it refuses.
        """
        for topic in topics:
            check_topic(topic)
        with self._lock, kafka_errors("looking at topics"):
            return find_drift(self._admin(), self._settings, topics)

    def settle_topics(self, topics: tuple[str, ...]) -> list[Drift]:
        """Create what is missing and set what is otherwise; return what is left.

        Raises:
            EventLogError: a name that no topic can have.
            EventLogUnavailableError: no broker answers, or it refuses.
        """
        self.create_topics(topics)
        drifts = self.find_drift(topics)
        with self._lock, kafka_errors("setting topics"):
            set_declared(self._admin(), drifts)
        return [drift for drift in drifts if not drift.is_repairable]

    def sink(self) -> EventSink:
        """Return a new sink with a producer of its own.

        Raises:
            EventLogUnavailableError: no broker answers.
        """
        return KafkaSink(self._settings, self._has_topic)

    def source(
        self, topics: tuple[str, ...], *, group: str, positions: PositionLoader
    ) -> EventSource:
        """Join a group; partition n of every topic goes to the same member.

        Raises:
            EventLogError: a topic does not exist.
            EventLogUnavailableError: no broker answers.
        """
        for topic in topics:
            self._require(topic)
        return KafkaSource(self._settings, topics, group=group, positions=positions)

    def bounds(self, topic: str) -> dict[int, Bounds]:
        """Return what each partition holds now.

        Raises:
            EventLogError: the topic does not exist.
            EventLogUnavailableError: no broker answers.
        """
        self._require(topic)
        with self._lock, kafka_errors(f"reading the bounds of {topic}"):
            reader = self._reader()
            places = [
                kafka.TopicPartition(topic, number)
                for number in sorted(reader.partitions_for_topic(topic) or ())
            ]
            timeout_ms = int(_READ_TIMEOUT_S * 1000)
            first = reader.beginning_offsets(places, timeout_ms=timeout_ms)
            end = reader.end_offsets(places, timeout_ms=timeout_ms)
            return {place.partition: Bounds(first[place], end[place]) for place in places}

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        """Read without a group: for the ledger, replay and tools.

        Raises:
            EventLogError: the topic does not exist.
            EventLogUnavailableError: no broker answers.
        """
        held = self.bounds(topic).get(partition)
        if held is None:
            return []
        start = max(offset, held.first)
        stop = min(held.end, start + max_records)
        with self._lock, kafka_errors(f"reading {topic}"):
            return self._read(kafka.TopicPartition(topic, partition), start, stop)

    def retain(self, topic: str, committed: Mapping[int, int], *, now: datetime) -> int:
        """Remove nothing: the brokers do, by the topic's own settings."""
        del topic, committed, now
        return 0

    def close(self) -> None:
        """Disconnect."""
        with self._lock, kafka_errors("disconnecting"):
            admin, self._admin_client = self._admin_client, None
            reader, self._reader_client = self._reader_client, None
            if admin is not None:
                admin.close()
            if reader is not None:
                reader.close(timeout_ms=1_000)

    def _read(self, place: Any, start: int, stop: int) -> list[Record]:
        reader = self._reader()
        reader.assign([place])
        reader.seek(place, start)
        records: list[Record] = []
        deadline = time.monotonic() + _READ_TIMEOUT_S
        while start + len(records) < stop:
            if time.monotonic() > deadline:
                raise EventLogUnavailableError(f"Kafka sent no records of {place} in time")
            found = reader.poll(timeout_ms=200, max_records=stop - start - len(records))
            records.extend(to_record(message) for message in found.get(place, ()))
        return records

    def _has_topic(self, topic: str) -> bool:
        with self._lock, kafka_errors("listing topics"):
            return topic in self._admin().list_topics()

    def _require(self, topic: str) -> None:
        if not self._has_topic(check_topic(topic)):
            raise EventLogError(f"no topic {topic!r} in Kafka; create_topics makes it")

    def _admin(self) -> KafkaAdminClient:
        if self._admin_client is None:
            self._admin_client = connect(KafkaAdminClient, self._settings)
        return self._admin_client

    def _reader(self) -> KafkaConsumer:
        if self._reader_client is None:
            self._reader_client = connect(
                KafkaConsumer,
                self._settings,
                {
                    "enable_auto_commit": False,
                    "auto_offset_reset": "earliest",
                    "allow_auto_create_topics": False,
                    "metrics_enabled": False,
                },
            )
        return self._reader_client
