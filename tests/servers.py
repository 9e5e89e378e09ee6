"""Real servers for tests; `examples/servers` starts them, as it does for the demo.

`TIDEMILL_TEST_DATABASE_URL` and `TIDEMILL_TEST_BOOTSTRAP` name running ones instead. What cannot be
had is a skip that says how to get it, or a failure where `TIDEMILL_REQUIRE_SERVERS` is 1.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy.engine import make_url

from examples.servers import kafka, postgres
from examples.servers.kafka import KafkaBroker
from examples.servers.mlflow import MlflowServer
from examples.servers.starting import MissingServerError, free_port, is_within, listens

__all__ = ["KafkaBroker", "free_port"]

_IMAGE = "apache/kafka:4.1.1"


def missing_server(how: str) -> NoReturn:
    """Skip the test and say how to get the server; fail where servers are required."""
    if os.environ.get("TIDEMILL_REQUIRE_SERVERS") == "1":
        pytest.fail(how)
    pytest.skip(how)


@dataclass(slots=True)
class PostgresServer:
    """A server on which each test has databases of its own."""

    url: str
    """Of the maintenance database."""

    def create_database(self, *, template: str | None = None) -> str:
        """Create a database, a copy of the template's (by name), and return its URL."""
        name = f"tidemill_{uuid4().hex[:16]}"
        copied = "" if template is None else f" TEMPLATE {template}"
        self._run(f"CREATE DATABASE {name}{copied}")
        return make_url(self.url).set(database=name).render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        """Drop a database with whoever is still connected."""
        self._run(f"DROP DATABASE IF EXISTS {make_url(url).database} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(statement.encode())


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Yield the named server, or one of our own in a folder that is removed afterwards."""
    named = os.environ.get("TIDEMILL_TEST_DATABASE_URL")
    if named:
        yield PostgresServer(make_url(named).set(drivername="postgresql").render_as_string(False))
        return
    try:
        postgres.find_postgres()
    except MissingServerError as error:
        missing_server(f"{error}, or name a server in TIDEMILL_TEST_DATABASE_URL")
    with tempfile.TemporaryDirectory(prefix="tidemill-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with postgres.running_postgres(folder, folder / "postgres.log") as server:
            yield PostgresServer(server.url)


def new_kafka_broker(data: Path) -> KafkaBroker:
    """Return a broker, not started, from the Apache Kafka that `KAFKA_HOME` names."""
    try:
        home = kafka.find_kafka()
    except MissingServerError as error:
        missing_server(str(error))
    return KafkaBroker(home, data, data / "broker.log")


@contextmanager
def running_kafka(data: Path) -> Iterator[str]:
    """Yield the bootstrap address of the named broker, or of one of our own."""
    named = os.environ.get("TIDEMILL_TEST_BOOTSTRAP")
    if named:
        yield named
        return
    home: Path | None = None
    try:
        home = kafka.find_kafka()
    except MissingServerError as error:
        if not _has_docker():
            missing_server(
                f"{error}; or set TIDEMILL_TEST_BOOTSTRAP to a running broker, or start Docker"
            )
    with _kafka_in_docker() if home is None else _kafka_of(home, data) as bootstrap:
        yield bootstrap


@contextmanager
def running_mlflow(folder: Path) -> Iterator[str]:
    """Yield the address of a real MLflow server that keeps its rows in a folder."""
    server = MlflowServer(folder, folder / "server.log")
    server.start()
    try:
        server.wait_ready()
        yield server.url
    finally:
        # Nothing of it is looked at any more; its orderly end takes seconds.
        server.kill()


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def _kafka_of(home: Path, data: Path) -> Iterator[str]:
    broker = KafkaBroker(home, data, data / "broker.log")
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


@contextmanager
def _kafka_in_docker() -> Iterator[str]:
    port = free_port()
    lines = kafka.broker_properties(port=port, controller=free_port(), logs=Path("/tmp/kafka"))  # noqa: S108
    variables: list[str] = []
    for line in lines.splitlines():
        name, value = line.split("=", 1)
        variables += ["--env", f"KAFKA_{name.upper().replace('.', '_')}={value}"]
    container = f"tidemill-kafka-{uuid4().hex[:8]}"
    options = ["--detach", "--rm", "--network", "host", "--name", container]
    subprocess.run(["docker", "run", *options, *variables, _IMAGE], check=True, capture_output=True)
    try:
        if not is_within(120.0, lambda: listens(port)):
            raise RuntimeError(f"the broker in Docker does not listen on port {port}")
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run(["docker", "kill", container], check=False, capture_output=True)
