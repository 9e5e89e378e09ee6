"""One member of a consumer group on Kafka, whose offsets live in SQL and not in Kafka."""

import threading
from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer

from tidemill.eventlog.base import PositionLoader, Record, TopicPartition
from tidemill.eventlog.kafka_assignor import CooperativeAssignor
from tidemill.eventlog.kafka_clients import connect, kafka_errors
from tidemill.eventlog.kafka_sink import to_moment
from tidemill.settings import KafkaLogSettings

_JOIN_STEP_MS = 20
"""How long one poll waits for the others of the group while it has partitions to read."""


class _Assignment(ConsumerRebalanceListener):  # type: ignore[misc]
    """Holds newly assigned partitions back until their positions are loaded.

    Kafka calls it on its own thread, which must not wait for a database.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._lock = threading.Lock()
        self._round = 0
        self._held_back: dict[Any, int] = {}

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        with self._lock:
            for place in revoked:
                self._held_back.pop(place, None)

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        with self._lock:
            self._round += 1
            for place in assigned:
                self._consumer.pause(place)
                # A position, though not the true one, so that Kafka looks for none itself.
                self._consumer.seek(place, 0)
                self._held_back[place] = self._round

    def release(self, load_position: PositionLoader) -> None:
        """Load the positions that are missing and let these partitions go on."""
        with self._lock:
            held_back = dict(self._held_back)
        for place, number in held_back.items():
            offset = load_position(TopicPartition(*place)) or 0
            with self._lock:
                # It may have gone, and come again with another position, meanwhile.
                if self._held_back.get(place) == number:
                    self._consumer.seek(place, offset)
                    self._consumer.resume(place)
                    del self._held_back[place]


class KafkaSource:
    """Implements `EventSource`; used by one thread, as kafka-python demands."""

    def __init__(
        self,
        settings: KafkaLogSettings,
        topics: tuple[str, ...],
        *,
        group: str,
        positions: PositionLoader,
    ) -> None:
        """Connect and join the group.

        Raises:
            EventLogUnavailableError: no broker answers.
        """
        self._load_position = positions
        assignor = CooperativeAssignor()
        self._consumer = connect(
            KafkaConsumer,
            settings,
            {
                "group_id": group,
                "enable_auto_commit": False,
                # Only where retention took the records before the position.
                "auto_offset_reset": "earliest",
                "partition_assignment_strategy": [assignor],
                "session_timeout_ms": int(settings.session_timeout_s * 1000),
                "max_poll_interval_ms": int(settings.max_poll_interval_s * 1000),
                "heartbeat_interval_ms": int(min(0.5, settings.session_timeout_s / 4) * 1000),
                "metadata_max_age_ms": 5_000,
                # Also how long a poll sleeps where it sees no fetch under way for a moment.
                "retry_backoff_ms": 10,
                "allow_auto_create_topics": False,
                "metrics_enabled": False,
            },
        )
        assignor.held = self._consumer.assignment
        _read_while_joining(self._consumer)
        self._assignment = _Assignment(self._consumer)
        self._consumer.subscribe(topics=list(topics), listener=self._assignment)
        with kafka_errors("looking topics up"):
            for topic in topics:
                # A leader that shares out what it does not know yet leaves everybody without work.
                self._consumer.partitions_for_topic(topic)

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return records of the assigned partitions, in order within each; empty at timeout.

        Raises:
            EventLogUnavailableError: Kafka refused.
        """
        self._assignment.release(self._load_position)
        with kafka_errors("polling"):
            found = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=max_records)
        return [to_record(message) for messages in found.values() for message in messages]

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are this member's now."""
        return frozenset(TopicPartition(*place) for place in self._consumer.assignment())

    def rewind(self) -> None:
        """Ask the position loader again for every assigned partition."""
        self._assignment.on_partitions_assigned(self._consumer.assignment())

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        with kafka_errors("leaving a group"):
            self._consumer.close(timeout_ms=5_000)


def _read_while_joining(consumer: KafkaConsumer) -> None:
    """Let polls return records of the partitions that are kept while the group shares out anew.

    A new round lasts until its slowest member has polled. kafka-python gives nobody anything until
    then, although the cooperative protocol takes nothing away from them that they keep.
    """
    coordinator = consumer._coordinator  # noqa: SLF001  it has no other way
    join = coordinator.poll

    def poll(timeout_ms: float | None = None) -> bool:
        if not consumer.assignment():
            is_member: bool = join(timeout_ms=timeout_ms)
            return is_member
        join(timeout_ms=_JOIN_STEP_MS if timeout_ms is None else min(timeout_ms, _JOIN_STEP_MS))
        return True

    coordinator.poll = poll


def to_record(message: Any) -> Record:
    """Return a message of kafka-python as a record."""
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        # A key of another producer may be any bytes; the reader compares it with the event's.
        key=(message.key or b"").decode(errors="replace"),
        value=message.value or b"",
        appended_at=to_moment(message.timestamp),
    )
