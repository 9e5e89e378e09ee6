"""The two columns, and an installation on one of them: servers, tables, a key, processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
from kafka import KafkaAdminClient
from sqlalchemy.engine import make_url

from benchmarks.facts import ROOT
from examples.servers import postgres
from examples.servers.kafka import KafkaBroker, find_kafka
from examples.servers.starting import ServerError, free_port, is_within
from ingest.settings import IngestSettings, RateLimitSettings
from tidemill.contracts.events import TOPICS
from tidemill.settings import (
    DatabaseSettings,
    EmbeddedLogSettings,
    KafkaLogSettings,
    LogSettings,
    SharedSettings,
)
from tidemill.storage.database import Database
from tidemill.storage.keys import Scope, create_key
from tidemill.storage.schema import upgrade

METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 86400\ndefault = false\n'
"""A window that no run outlasts: nothing is closed while something else is measured."""
_START_S = 240.0
"""MLflow takes up to a minute where the machine has other work too."""


class Column(StrEnum):
    """Where the log and the rows are kept."""

    EMBEDDED = "embedded"
    """SQLite for both."""
    KAFKA = "kafka"
    """Apache Kafka and PostgreSQL."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What a column runs on."""

    log: LogSettings
    maintenance_url: str | None
    """Of a PostgreSQL on which databases are made; None = SQLite."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A data folder with tables, metrics and a key that may write."""

    shared: SharedSettings
    settings: IngestSettings
    key: str


@contextmanager
def running_servers(column: Column, folder: Path) -> Iterator[Servers]:
    """Run what a column needs.

    Raises:
        ServerError: Kafka or PostgreSQL is missing, or did not start.
    """
    if column is Column.EMBEDDED:
        yield Servers(EmbeddedLogSettings(), None)
        return
    broker = KafkaBroker(find_kafka(), folder / "kafka", folder / "kafka.log")
    broker.start()
    try:
        with postgres.running_postgres(folder / "postgres", folder / "postgres.log") as server:
            yield Servers(KafkaLogSettings(bootstrap_servers=broker.bootstrap), server.url)
    finally:
        broker.stop()


@contextmanager
def installed(servers: Servers, metrics: str = METRICS) -> Iterator[Installation]:
    """Make an installation with keys and rate limits on; the limits are beyond any load.

    Its log is empty: a log on Kafka loses what an earlier installation left there.

    Raises:
        ServerError: Kafka did not remove it in time.
    """
    if isinstance(servers.log, KafkaLogSettings):
        _remove_topics(servers.log.bootstrap_servers)
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
        folder = Path(name)
        (folder / "metrics.toml").write_text(metrics)
        (folder / "data").mkdir()
        shared = SharedSettings(
            data=folder / "data",
            metrics=folder / "metrics.toml",
            log=servers.log,
            database=DatabaseSettings(url=new_database(servers.maintenance_url)),
        )
        limits = RateLimitSettings(
            key_per_s=1e6, key_burst=10_000_000, rater_per_s=1e6, rater_burst=10_000_000
        )
        settings = IngestSettings(port=free_port(), rate_limits=limits)
        yield Installation(shared, settings, _prepare(shared))


@contextmanager
def serving(
    module: str,
    arguments: Sequence[str],
    port: int,
    *,
    health: str = "/ready",
    environment: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Run a module as a process, from when it answers 200 on its port until SIGTERM.

    Raises:
        ServerError: it ended, or was not ready in time.
    """
    with running([sys.executable, "-m", module, *arguments], environment) as process:
        is_over = is_within(_START_S, lambda: _is_ready(port, health) or process.poll() is not None)
        if not is_over:
            raise ServerError(f"{module} was not ready within {_START_S:.0f} s")
        if process.poll() is not None:
            raise ServerError(f"{module} ended at its start with exit code {process.returncode}")
        yield


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, and end it and its children with SIGTERM."""
    process = subprocess.Popen(  # noqa: S603  the command is ours
        command,
        cwd=ROOT,
        env=os.environ | {"TIDEMILL_LOG_LEVEL": "ERROR"} | dict(environment or {}),
        # What it has started itself is ended with it, as one group.
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def serving_api(installation: Installation) -> AbstractContextManager[None]:
    """Run the real API process; a worker runs beside it only where one is started."""
    arguments = _part("api_process", installation)
    return serving("benchmarks.ingest.part", arguments, installation.settings.port)


def running_worker(
    installation: Installation,
) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Run the real worker process; it needs a while until it reads."""
    module = "benchmarks.ingest.part"
    return running([sys.executable, "-m", module, *_part("worker", installation)])


def _part(name: str, installation: Installation) -> tuple[str, str, str]:
    shared, settings = installation.shared, installation.settings
    return name, shared.model_dump_json(), settings.model_dump_json()


def _is_ready(port: int, health: str) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{health}", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _remove_topics(bootstrap_servers: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    try:
        left = set(TOPICS) & set(admin.list_topics())
        if left:
            admin.delete_topics(sorted(left))
        if not is_within(_START_S, lambda: not left & set(admin.list_topics())):
            raise ServerError(f"Kafka has not removed {sorted(left)} within {_START_S:.0f} s")
    finally:
        admin.close()


def new_database(maintenance_url: str | None) -> str | None:
    """Make a database on a PostgreSQL and return its URL; None = SQLite has nothing to make."""
    if maintenance_url is None:
        return None
    name = f"bench_{uuid4().hex[:12]}"
    with psycopg.connect(maintenance_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return make_url(maintenance_url).set(database=name).render_as_string(hide_password=False)


def _prepare(shared: SharedSettings) -> str:
    """Make tables and a key; return its text."""
    database = Database(shared.database_url)
    upgrade(database)
    scopes = (Scope.FEEDBACK_WRITE, Scope.INTERACTIONS_WRITE)
    with database.transaction() as session:
        _, key = create_key(
            session, tenant=shared.tenant, scopes=scopes, label="bench", now=datetime.now(UTC)
        )
    database.close()
    return key
