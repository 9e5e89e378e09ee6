"""The threads that ask judges, apart from the thread that reads the log."""

import logging
import threading
import time
from collections import Counter

from ingest.judge_desk import JudgeDesk, Step, backoff_s
from ingest.judge_endpoint import JudgeEndpoint
from ingest.settings import JudgeSettings
from tidemill.rewards.metrics import MetricsFile
from tidemill.storage.database import Database

_log = logging.getLogger(__name__)

_JOIN_S = 2.0
"""All votes that are still under way then are given up, and are due again after a wait."""


class JudgePool:
    """Asks while its block runs; does nothing where no judge is declared."""

    def __init__(
        self,
        database: Database,
        metrics: MetricsFile,
        settings: JudgeSettings,
        endpoint: JudgeEndpoint | None,
    ) -> None:
        """Start nothing yet.

        Args:
            database: where judgements are wanted and written.
            metrics: the declared judges.
            settings: how patiently and how many at once.
            endpoint: closed at the end of the block; None = nobody is asked.
        """
        self._settings = settings
        self._endpoint = endpoint
        self._stop = threading.Event()
        asks = [] if endpoint is None else [endpoint.ask] * settings.concurrency
        self._desks = [
            JudgeDesk(database=database, metrics=metrics, settings=settings, ask=ask)
            for ask in asks
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(desk,), name=f"judge-{i}", daemon=True)
            for i, desk in enumerate(self._desks)
        ]

    def __enter__(self) -> "JudgePool":
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more work; what is asked now has a moment to be written."""
        self._stop.set()
        self._join()
        if self._endpoint is not None:
            self._endpoint.close()
        # What was given up is written down, which makes it due again.
        self._join()

    def _join(self) -> None:
        # One wait for all: however many ask, a worker must end before it is killed.
        deadline = time.monotonic() + _JOIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def counters(self) -> dict[str, int]:
        """What all threads did so far."""
        total: Counter[str] = Counter()
        for desk in self._desks:
            total.update(dict(desk.counters))
        return dict(total)

    def _run(self, desk: JudgeDesk) -> None:
        failures = 0
        while not self._stop.is_set():
            step = self._step(desk)
            if step is Step.FAILED:
                # One wait for all it has: in an outage nobody hammers the judge row by row.
                self._stop.wait(backoff_s(failures, self._settings))
                failures += 1
                continue
            failures = 0
            if step is Step.IDLE:
                self._stop.wait(self._settings.poll_s)

    def _step(self, desk: JudgeDesk) -> Step:
        try:
            return desk.step()
        except Exception:
            # Whatever it was, this thread is the only one that would ask on.
            _log.exception("a judgement failed, trying again")
            return Step.FAILED
