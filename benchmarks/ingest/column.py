"""The two columns, and an installation on one of them: servers, tables, a key, processes."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import httpx
import psycopg
from sqlalchemy.engine import make_url

from benchmarks.facts import ROOT
from examples.servers import postgres
from examples.servers.kafka import KafkaBroker, find_kafka
from examples.servers.starting import ServerError, free_port, is_within
from ingest.settings import IngestSettings, RateLimitSettings
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

_METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 86400\ndefault = false\n'
"""A window that no run outlasts: nothing is closed while something else is measured."""
_START_S = 60.0


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
def installed(servers: Servers) -> Iterator[Installation]:
    """Make an installation with keys and rate limits on; the limits are beyond any load."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as name:
        folder = Path(name)
        (folder / "metrics.toml").write_text(_METRICS)
        (folder / "data").mkdir()
        shared = SharedSettings(
            data=folder / "data",
            metrics=folder / "metrics.toml",
            log=servers.log,
            database=DatabaseSettings(url=_new_database(servers.maintenance_url)),
        )
        limits = RateLimitSettings(
            key_per_s=1e6, key_burst=10_000_000, rater_per_s=1e6, rater_burst=10_000_000
        )
        settings = IngestSettings(port=free_port(), rate_limits=limits)
        yield Installation(shared, settings, _prepare(shared))


@contextmanager
def serving(module: str, arguments: Sequence[str], port: int) -> Iterator[None]:
    """Run a module as a process, from when `/ready` answers 200 on its port until SIGTERM.

    Raises:
        ServerError: it ended, or was not ready in time.
    """
    process = subprocess.Popen(  # noqa: S603  the command is ours
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=os.environ | {"TIDEMILL_LOG_LEVEL": "ERROR"},
    )
    try:
        if not is_within(_START_S, lambda: _is_ready(port) or process.poll() is not None):
            raise ServerError(f"{module} was not ready within {_START_S:.0f} s")
        if process.poll() is not None:
            raise ServerError(f"{module} ended at its start with exit code {process.returncode}")
        yield
    finally:
        process.terminate()
        process.wait(30)


def serving_api(installation: Installation) -> AbstractContextManager[None]:
    """Run the real API process; no worker runs beside it."""
    arguments = (
        "api_process",
        installation.shared.model_dump_json(),
        installation.settings.model_dump_json(),
    )
    return serving("benchmarks.ingest.part", arguments, installation.settings.port)


def _is_ready(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/ready", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def _new_database(maintenance_url: str | None) -> str | None:
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
