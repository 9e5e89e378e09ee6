"""The process of the feedback API: wiring, start, drain."""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Collection
from contextlib import closing
from datetime import UTC, datetime

import uvicorn

from ingest.acceptor import Acceptor
from ingest.api import build_app
from ingest.api_parts import Api
from ingest.callers import Callers
from ingest.idempotency import Idempotency
from ingest.lookup import Lookup
from ingest.quotas import Quotas
from ingest.readiness import Readiness
from ingest.settings import IngestSettings
from tidemill.contracts.events import FEEDBACK, TOPICS
from tidemill.errors import EventLogError, StorageError
from tidemill.eventlog.base import EventLog, EventSink
from tidemill.eventlog.opening import open_log
from tidemill.process import (
    FORCE_AFTER_S,
    Pulse,
    configure_logging,
    listen,
    spare_collector,
    stop_on_signal,
)
from tidemill.rewards.metrics_file import load_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.feedback import fetch_known_digests
from tidemill.storage.interactions import InteractionKey, fetch_known_documents
from tidemill.storage.keys import ApiKey, authenticate
from tidemill.storage.known_feedback import KnownFeedback
from tidemill.storage.offsets import write_acknowledged
from tidemill.storage.schema import require_current_schema
from tidemill.storage.tables import AcknowledgedCountRow
from tidemill.subjects import SubjectHasher, load_or_create_secret

_log = logging.getLogger(__name__)

PART = "ingest-api"
_KEEP_ALIVE_S = 75
_DRAIN_S = 10
_TICK_S = 0.25
_ASKED_AT_ONCE = 256
"""Ids that SQLite is asked for on the event loop: half a microsecond each."""


class Server:
    """The database, the log and the HTTP thread of one process."""

    def __init__(self, shared: SharedSettings, settings: IngestSettings) -> None:
        """Put the parts together; nothing is connected yet.

        Raises:
            ConfigurationError: the metrics file or the secret is wrong.
        """
        self._shared = shared
        self._settings = settings
        self._database = Database(shared.database_url)
        self._known_feedback = KnownFeedback(self._database)
        self._log: EventLog | None = None
        self._sink: EventSink | None = None
        self._process_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._written: dict[str, int] = {}
        size = settings.recent_ids
        self.acceptor = Acceptor(
            settings=settings,
            metrics=load_metrics(shared.metrics),
            known_feedback=Lookup(
                self._known_feedback.fetch_digests,
                size=size,
                timeout_s=settings.look_up_timeout_s,
                num_at_once=_ASKED_AT_ONCE if self._database.is_sqlite else 0,
            ),
            known_interactions=Lookup(
                self._find_interactions,
                size=min(size, 1000),
                timeout_s=settings.look_up_timeout_s,
            ),
        )
        hasher = SubjectHasher(load_or_create_secret(shared))
        self.api = Api(
            settings=settings,
            model=shared.model,
            callers=Callers(
                self._find_key,
                open_to=None if settings.require_key else shared.tenant,
                fresh_s=settings.key_cache_s,
                timeout_s=settings.look_up_timeout_s,
            ),
            hasher=hasher,
            idempotency=Idempotency(hasher),
            quotas=Quotas(settings.rate_limits),
            acceptor=self.acceptor,
            database=self._database,
            missing=self._all_missing,
        )
        self._readiness = Readiness(
            {"database": self._ask_database, "event log": self._ask_log},
            timeout_s=settings.ready_timeout_s,
        )

    def missing(self) -> list[str]:
        """Return what keeps this process from storing feedback, as far as it knows by itself."""
        return [] if self._sink is not None else ["the event log cannot be reached"]

    async def _all_missing(self) -> list[str]:
        return list(dict.fromkeys(self.missing() + await self._readiness.missing()))

    def _ask_database(self) -> None:
        with self._database.reading() as session:
            fetch_known_digests(session, {("", "")})

    def _ask_log(self) -> None:
        # One of its own: what hangs here holds no lock that the others need.
        with closing(open_log(self._shared)) as log:
            log.bounds(FEEDBACK)

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop, then answer what is under way.

        Raises:
            ConfigurationError: the port is taken, or the database is not migrated.
        """
        require_current_schema(self._database)
        listener = listen(self._settings.host, self._settings.port, setting="ingest.port")
        http = uvicorn.Server(_http_config(self.api))
        thread = threading.Thread(target=http.run, args=([listener],), name="http")
        self._connect()
        spare_collector()
        with Pulse(self._database, PART) as pulse:
            thread.start()
            _log.info("listening on http://%s:%d", *listener.getsockname()[:2])
            last_count = time.monotonic()
            while not stop.wait(_TICK_S) and thread.is_alive():
                self._connect()
                self._show(pulse)
                if time.monotonic() - last_count >= self._settings.count_every_s:
                    self._write_counts()
                    last_count = time.monotonic()
            http.should_exit = True
            thread.join()
            self._show(pulse)
            self._disconnect()
            self._write_counts()
        self._known_feedback.close()
        self._database.close()

    def _connect(self) -> None:
        """Open the log where it is not open; one try a tick until it answers."""
        if self._sink is not None:
            return
        try:
            self._log = self._log or open_log(self._shared)
            self._log.create_topics(TOPICS)
            self._sink = self._log.sink()
        except EventLogError as error:
            _log.warning("the log cannot be reached, feedback is answered with 503: %s", error)
        self.acceptor.appends.sink = self._sink

    def _disconnect(self) -> None:
        if self._sink is not None:
            self._sink.close()
        if self._log is not None:
            self._log.close()

    def _show(self, pulse: Pulse) -> None:
        missing = self.missing()
        pulse.ready = not missing
        pulse.detail = "; ".join(missing) or "takes feedback"
        rejected = self.api.callers.num_rejected
        pulse.counters = (
            dict(self.acceptor.num_answered)
            | {f"rejected_{reason}": number for reason, number in rejected.items()}
            | {"in_flight": self.acceptor.room.num_records}
        )

    def _write_counts(self) -> None:
        counts = dict(self.acceptor.num_acknowledged)
        if counts == self._written:
            return
        moment = datetime.now(UTC)
        try:
            with self._database.transaction() as session:
                for topic, count in counts.items():
                    row = AcknowledgedCountRow(
                        process_id=self._process_id,
                        topic=topic,
                        num_acknowledged=count,
                        updated_at=moment,
                    )
                    write_acknowledged(session, row)
            self._written = counts
        except StorageError as error:
            _log.warning("the acknowledged count is written later: %s", error)

    def _find_key(self, text: str) -> ApiKey | None:
        with self._database.reading() as session:
            return authenticate(session, text)

    def _find_interactions(self, keys: Collection[InteractionKey]) -> dict[InteractionKey, bytes]:
        with self._database.reading() as session:
            # An erased one has no bytes left: whatever comes under its id is a conflict.
            found = fetch_known_documents(session, keys)
        return {one: document or b"" for one, document in found.items()}


def run(shared: SharedSettings, settings: IngestSettings) -> int:
    """Serve until SIGTERM, drain, and return the exit code.

    Raises:
        ConfigurationError: the process cannot start like this.
    """
    configure_logging(PART)
    stop = stop_on_signal(force_after_s=FORCE_AFTER_S)
    Server(shared, settings).run(stop)
    return 0


def _http_config(api: Api) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(api),
        lifespan="off",
        log_config=None,
        access_log=False,
        # Nothing here depends on who a proxy says that the caller is.
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
    )
