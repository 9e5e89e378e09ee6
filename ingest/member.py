"""One member of the consumer group: takes batches of the log into rows, and closes what is due.

Each batch is one transaction together with its offsets, so a kill at any moment loses nothing and
doubles nothing: the next member reads on from the offsets that its rows belong to.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ingest.closer import Closer
from ingest.intake import TOPICS_READ, Intake
from ingest.settings import IngestSettings
from tidemill.errors import StorageError
from tidemill.eventlog.base import EventLog, EventSource, TopicPartition
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.verifiers import Verifier
from tidemill.storage.database import Database
from tidemill.storage.interactions import InteractionKey
from tidemill.storage.offsets import fetch_committed, fetch_position


@dataclass(slots=True)
class Member:
    """Used by one thread."""

    database: Database
    log: EventLog
    settings: IngestSettings
    metrics: MetricsFile
    verifiers: dict[str, Verifier] = field(default_factory=dict)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counters: dict[str, int] = field(default_factory=dict)
    _expected: dict[TopicPartition, int | None] = field(default_factory=dict, init=False)
    _ended: set[InteractionKey] = field(default_factory=set, init=False)
    """Interactions that an answer has closed, to be closed in SQL too."""
    _source: EventSource = field(init=False)
    _intake: Intake = field(init=False)
    _closer: Closer = field(init=False)

    def __post_init__(self) -> None:
        """Join the group."""
        settings = self.settings
        self._intake = Intake(
            group=settings.consumer_group,
            metrics=self.metrics,
            unmatched_after_s=settings.unmatched_after_s,
        )
        self._closer = Closer(
            database=self.database,
            log=self.log,
            group=settings.consumer_group,
            metrics=self.metrics,
            verifiers=self.verifiers,
            grace_s=settings.close_grace_s,
            unmatched_after_s=settings.unmatched_after_s,
            limit=settings.close_records,
            judge_wait_s=settings.judge.wait_s,
            now=self.now,
        )
        self._source = self.log.source(
            TOPICS_READ, group=settings.consumer_group, positions=self._load_position
        )

    def read_once(self, timeout_s: float | None = None) -> int:
        """Take one batch from the log into rows; return how many records it had.

        Raises:
            FencedError: another worker came first; nothing was written, the source begins again.
            StorageError: the database refused; nothing was written, the source begins again.
        """
        wait_s = self.settings.poll_timeout_s if timeout_s is None else timeout_s
        records = self._source.poll(max_records=self.settings.poll_records, timeout_s=wait_s)
        if not records:
            return 0
        try:
            with self.database.transaction() as session:
                sifted, moved = self._intake.store(session, records, self._expected)
        except StorageError:
            self._source.rewind()
            raise
        self._expected |= moved
        self._ended |= sifted.ended
        self.count("records", len(records))
        self.count("interactions", len(sifted.interactions))
        self.count("feedback", len(sifted.feedback))
        self.count("duplicates", len(sifted.duplicates))
        self.count("dead_letters", len(sifted.letters))
        self._close_ended()
        return len(records)

    def close_once(self) -> int:
        """Close what is due and expire what waited too long; return how many were closed."""
        self._close_ended()
        partitions = {place.partition for place in self._source.assignment()}
        closed = self._closer.close_due(partitions)
        self.count("closed", closed)
        self.count("expired", self._closer.expire_due(partitions))
        return closed

    def _close_ended(self) -> None:
        if not self._ended:
            return
        closed = self._closer.close_ended(self._ended)
        # Only now: what failed is tried again.
        self._ended = set()
        self.count("closed", closed)

    def retain_once(self) -> int:
        """Let the log remove what is past its retention and stored by every group.

        Returns:
            How many records were removed; there may be more.

        Raises:
            StorageError: the database cannot be asked.
            EventLogError: the log cannot be read or written.
        """
        removed = 0
        for topic in TOPICS_READ:
            with self.database.reading() as session:
                committed = fetch_committed(session, self.settings.consumer_group, topic=topic)
            removed += self.log.retain(topic, committed, now=self.now())
        self.count("removed", removed)
        return removed

    def close(self) -> None:
        """Leave the group."""
        self._source.close()

    @property
    def num_partitions(self) -> int:
        """How many partitions are this member's now."""
        return len(self._source.assignment())

    def count(self, name: str, number: int) -> None:
        """Add to a counter."""
        self.counters[name] = self.counters.get(name, 0) + number

    def _load_position(self, place: TopicPartition) -> int | None:
        with self.database.reading() as session:
            group = self.settings.consumer_group
            position = fetch_position(session, group, place.topic, place.partition)
        self._expected[place] = position
        return position
