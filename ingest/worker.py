"""The ingest worker: reads the log, joins feedback to interactions, closes, rewards.

Each batch is one transaction together with its offsets, so a kill at any moment loses nothing and
doubles nothing: the next worker reads on from the offsets that its rows belong to.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ingest.closer import Closer
from ingest.intake import TOPICS_READ, Intake
from ingest.settings import IngestSettings
from tidemill.contracts.events import TOPICS
from tidemill.errors import EventLogError, FencedError, StorageError
from tidemill.eventlog.base import EventLog, EventSource, TopicPartition
from tidemill.eventlog.opening import open_log
from tidemill.process import Pulse, configure_logging, stop_on_signal
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import load_metrics
from tidemill.rewards.verifiers import Verifier, load_verifiers
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.offsets import fetch_position
from tidemill.storage.schema import require_current_schema

_log = logging.getLogger(__name__)

PART = "ingest-worker"
_RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits after failures in a row; the last one repeats."""


@dataclass(slots=True)
class Worker:
    """One member of the consumer group; used by one thread."""

    database: Database
    log: EventLog
    settings: IngestSettings
    metrics: MetricsFile
    verifiers: dict[str, Verifier] = field(default_factory=dict)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    counters: dict[str, int] = field(default_factory=dict)
    _expected: dict[TopicPartition, int | None] = field(default_factory=dict, init=False)
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
            limit=settings.close_records,
            now=self.now,
        )
        self._source = self.log.source(
            TOPICS_READ, group=settings.consumer_group, positions=self._load_position
        )

    def run(self, stop: threading.Event, pulse: Pulse | None = None) -> None:
        """Work until `stop` is set, then leave the group."""
        failures = 0
        next_close = 0.0
        while not stop.is_set():
            started = time.monotonic()
            try:
                num_records = self.read_once()
                if started >= next_close:
                    self.close_once()
                    next_close = time.monotonic() + self.settings.close_every_s
                failures = 0
            except (StorageError, EventLogError) as error:
                failures += 1
                self._recover(error, stop, failures)
                continue
            finally:
                if pulse is not None:
                    self._report(pulse, failures)
            if num_records < self.settings.poll_records:
                # Thin traffic: fewer, fuller transactions leave the machine to the other parts.
                stop.wait(max(0.0, self.settings.batch_every_s - (time.monotonic() - started)))

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
        self._count("records", len(records))
        self._count("interactions", len(sifted.interactions))
        self._count("feedback", len(sifted.feedback))
        self._count("duplicates", len(sifted.duplicates))
        self._count("dead_letters", len(sifted.letters))
        return len(records)

    def close_once(self) -> int:
        """Close what is due and expire what waited too long; return how many were closed."""
        partitions = {place.partition for place in self._source.assignment()}
        closed = self._closer.close_due(partitions)
        self._count("closed", closed)
        self._count("expired", self._closer.expire_due(partitions))
        return closed

    def close(self) -> None:
        """Leave the group."""
        self._source.close()

    def _load_position(self, place: TopicPartition) -> int | None:
        with self.database.reading() as session:
            group = self.settings.consumer_group
            position = fetch_position(session, group, place.topic, place.partition)
        self._expected[place] = position
        return position

    def _recover(self, error: Exception, stop: threading.Event, failures: int) -> None:
        self._count("fenced" if isinstance(error, FencedError) else "failures", 1)
        _log.warning("nothing was written, trying again: %s", error)
        stop.wait(_RETRY_S[min(failures, len(_RETRY_S)) - 1])

    def _report(self, pulse: Pulse, failures: int) -> None:
        pulse.ready = failures == 0
        pulse.detail = f"reads {len(self._source.assignment())} partitions"
        if failures:
            pulse.detail = f"{failures} failures in a row; see the log"
        pulse.counters = dict(self.counters)

    def _count(self, name: str, number: int) -> None:
        self.counters[name] = self.counters.get(name, 0) + number


def run(shared: SharedSettings, settings: IngestSettings) -> int:
    """Run the worker as a process until SIGTERM; return its exit code.

    Raises:
        ConfigurationError: metrics, plugins or schema are wrong.
    """
    configure_logging(PART)
    stop = stop_on_signal()
    metrics = load_metrics(shared.metrics)
    verifiers = load_verifiers(metrics)
    database = Database(shared.database_url)
    require_current_schema(database)
    log = open_log(shared)
    log.create_topics(TOPICS)
    worker = Worker(database, log, settings, metrics, verifiers)
    try:
        with Pulse(database, PART) as pulse:
            worker.run(stop, pulse)
    finally:
        worker.close()
        log.close()
        database.close()
    return 0
