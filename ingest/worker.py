"""The ingest worker: reads the log, joins feedback to interactions, closes, rewards."""

import logging
import os
import threading
import time

from ingest.judge_endpoint import open_endpoint
from ingest.judge_pool import JudgePool
from ingest.member import Member
from ingest.settings import IngestSettings
from tidemill.contracts.events import TOPICS
from tidemill.errors import EventLogError, FencedError, StorageError
from tidemill.eventlog.opening import open_log
from tidemill.process import (
    FORCE_AFTER_S,
    Pulse,
    configure_logging,
    spare_collector,
    stop_on_signal,
)
from tidemill.rewards.metrics_file import load_metrics
from tidemill.rewards.verifiers import load_verifiers
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import require_current_schema

_log = logging.getLogger(__name__)

PART = "ingest-worker"
_RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Waits after failures in a row; the last one repeats."""


def run(shared: SharedSettings, settings: IngestSettings) -> int:
    """Run the worker as a process until SIGTERM; return its exit code.

    Raises:
        ConfigurationError: metrics, plugins or schema are wrong.
    """
    configure_logging(PART)
    # A batch that is not done by then was never committed, and is read again.
    stop = stop_on_signal(force_after_s=FORCE_AFTER_S)
    metrics = load_metrics(shared.metrics)
    verifiers = load_verifiers(metrics)
    endpoint = open_endpoint(metrics, settings.judge, os.environ)
    database = Database(shared.database_url)
    require_current_schema(database)
    log = open_log(shared)
    log.create_topics(TOPICS)
    spare_collector()
    member = Member(database, log, settings, metrics, verifiers)
    try:
        with (
            Pulse(database, PART) as pulse,
            JudgePool(database, metrics, settings.judge, endpoint) as pool,
        ):
            work(member, stop, pulse, pool)
    finally:
        member.close()
        log.close()
        database.close()
    return 0


def work(
    member: Member,
    stop: threading.Event,
    pulse: Pulse | None = None,
    pool: JudgePool | None = None,
) -> None:
    """Read and close until `stop` is set; whatever fails is tried again."""
    settings = member.settings
    failures = 0
    next_close = next_retain = 0.0
    while not stop.is_set():
        started = time.monotonic()
        try:
            num_records = member.read_once()
            if started >= next_close:
                member.close_once()
                next_close = time.monotonic() + settings.close_every_s
            if started >= next_retain:
                removed = member.retain_once()
                next_retain = time.monotonic() + (0 if removed else settings.retain_every_s)
            failures = 0
        except (StorageError, EventLogError) as error:
            failures += 1
            member.count("fenced" if isinstance(error, FencedError) else "failures", 1)
            _log.warning("nothing was written, trying again: %s", error)
            stop.wait(_RETRY_S[min(failures, len(_RETRY_S)) - 1])
            num_records = settings.poll_records
        if pulse is not None:
            _report(pulse, member, failures)
            pulse.counters |= {} if pool is None else pool.counters
        if num_records < settings.poll_records:
            # Thin traffic: fewer, fuller transactions leave the machine to the other parts.
            stop.wait(max(0.0, settings.batch_every_s - (time.monotonic() - started)))


def _report(pulse: Pulse, member: Member, failures: int) -> None:
    pulse.ready = failures == 0
    pulse.detail = f"reads {member.num_partitions} partitions"
    if failures:
        pulse.detail = f"{failures} failures in a row; see the log"
    pulse.counters = dict(member.counters)
