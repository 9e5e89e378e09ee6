"""The serving process: wiring, start, drain."""

import logging
import threading

import torch
import uvicorn

from serving.app import build_app
from serving.emission import Emitter
from serving.keyring import KeyRing
from serving.loading import VersionLoader
from serving.scheduler import EngineFactory, Scheduler
from serving.service import Backend, Service
from serving.settings import ServingSettings
from serving.tokens import build_token_table
from serving.watcher import SwapRecord, Watcher, reason_of
from tidemill.errors import ConfigurationError, TidemillError
from tidemill.eventlog.opening import open_log
from tidemill.eventlog.spool import Spool
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.engine.batch_engine import BatchEngine
from tidemill.process import Pulse, configure_logging, listen, stop_on_signal
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.keys import ApiKey, authenticate
from tidemill.storage.replicas import insert_replica_version
from tidemill.storage.schema import require_current_schema
from tidemill.storage.tables import ReplicaVersionRow
from tidemill.subjects import SubjectHasher, load_or_create_secret

_log = logging.getLogger(__name__)

_KEEP_ALIVE_S = 75
_BASE_RETRY_S = 2.0


class ThreadDiedError(TidemillError):
    """The process cannot do its work any more; whoever started it starts another."""


class Server:
    """Every thread of the process and the order in which they start and end."""

    def __init__(self, shared: SharedSettings, settings: ServingSettings) -> None:
        self._shared = shared
        self._settings = settings
        self._database = Database(shared.database_url)
        self._registry = PolicyRegistry(self._database, model=shared.model, tenant=shared.tenant)
        self._base: BaseModel | None = None
        self._scheduler = Scheduler(max_in_flight=settings.max_batch + settings.max_waiting)
        self._watcher = Watcher(
            registry=self._registry,
            load_version=self._load_version,
            scheduler=self._scheduler,
            replica=self,
            refused_retry_s=settings.refused_retry_s,
        )
        self.service = Service(
            model=shared.model,
            tenant=shared.tenant,
            settings=settings,
            scheduler=self._scheduler,
            watcher=self._watcher,
            emitter=Emitter(
                open_log=lambda: open_log(shared),
                spool=Spool(shared.data / "spool"),
                append_timeout_s=settings.append_timeout_s,
                drain_every_s=settings.spool_drain_s,
            ),
            keyring=KeyRing(
                self._find_key,
                tenant=shared.tenant,
                fresh_s=settings.key_cache_s,
                stale_s=settings.key_stale_s,
            ),
            hasher=SubjectHasher(load_or_create_secret(shared)),
        )

    def run(self, stop: threading.Event) -> None:
        """Serve until told to stop, or a thread that is needed dies; then drain.

        Raises:
            ConfigurationError: the port is taken, or the database is not migrated.
            ThreadDiedError: a thread died; only a new process has all of them again.
        """
        require_current_schema(self._database)
        settings, service = self._settings, self.service
        listener = listen(settings.host, settings.port, setting="serving.port")
        http = uvicorn.Server(_http_config(service, drain_s=settings.drain_timeout_s))
        service.emitter.start()
        self._scheduler.start()
        ending = threading.Event()
        threads = [
            threading.Thread(target=self._follow, args=(ending,), name="watcher"),
            threading.Thread(target=http.run, args=([listener],), name="http"),
        ]
        with Pulse(self._database, settings.replica) as pulse:
            for thread in threads:
                thread.start()
            service.threads = threads
            _log.info("listening on http://%s:%d", *listener.getsockname()[:2])
            while not stop.wait(0.25) and not service.dead:
                self._show(pulse)
            dead = service.dead
            service.is_stopping = True
            self._show(pulse)
            threading.Event().wait(settings.shutdown_notice_s)
            http.should_exit = True
            ending.set()
            for thread in threads:
                thread.join()
            self._scheduler.stop(timeout_s=settings.drain_timeout_s)
            service.emitter.close()
        self._database.close()
        if dead:
            raise ThreadDiedError(f"the {' and '.join(dead)} thread died; the log above says why")

    def _show(self, pulse: Pulse) -> None:
        missing = self.service.missing
        pulse.ready = not missing
        pulse.detail = missing or f"serves {', '.join(self._watcher.lineup.versions)}"
        pulse.counters = dict(self.service.figures())

    def _follow(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._base = load_base(self._shared.base_path, settings=self._shared.policy)
            except Exception as error:
                # As with a version: what is missing shows in /ready, and may come back.
                reason = reason_of(error)
                if self._watcher.missing != reason:
                    _log.warning("not ready: %s", reason)
                self._watcher.missing = reason
                stop.wait(_BASE_RETRY_S)
                continue
            self.service.backend = Backend(
                base=self._base,
                table=build_token_table(self._base.tokenizer),
                max_context=min(self._settings.max_context, self._base.max_context),
            )
            self._watcher.run(stop, poll_s=self._settings.poll_s)

    def _load_version(self, version: str) -> EngineFactory:
        if self._base is None:
            raise ConfigurationError("the base is not loaded yet")
        base = self._base
        loader = VersionLoader(base, SnapshotStore(self._shared.snapshots_path))
        model = loader.load(self._registry.get(version))

        def make_engine() -> BatchEngine:
            return BatchEngine(
                model,
                base,
                max_batch=self._settings.max_batch,
                max_context=self._settings.max_context,
            )

        return make_engine

    @property
    def num_in_flight(self) -> int:
        """How many requests are under way."""
        return self.service.num_in_flight

    def record_swap(self, record: SwapRecord) -> None:
        """Keep a swap in the rows.

        Raises:
            StorageError: the database is away.
        """
        row = ReplicaVersionRow(
            replica=self._settings.replica,
            model=self._shared.model,
            tenant=self._shared.tenant,
            version=record.version,
            role=record.role,
            outcome=record.outcome,
            detail=record.detail,
            in_flight=record.in_flight,
            pause_ms=record.pause_ms,
            load_ms=record.load_ms,
            at=record.at,
        )
        with self._database.transaction() as session:
            insert_replica_version(session, row)

    def _find_key(self, text: str) -> ApiKey | None:
        with self._database.reading() as session:
            return authenticate(session, text)


def run(shared: SharedSettings, settings: ServingSettings) -> int:
    """Serve until SIGTERM, drain, and return the exit code.

    Raises:
        ConfigurationError: the process cannot start like this.
        ThreadDiedError: it must be started again.
    """
    configure_logging(settings.replica)
    torch.set_num_threads(shared.policy.num_threads)
    stop = stop_on_signal()
    Server(shared, settings).run(stop)
    return 0


def _http_config(service: Service, *, drain_s: float) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(service),
        lifespan="off",
        log_config=None,
        access_log=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )
