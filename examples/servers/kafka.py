"""One Kafka broker of our own, from an unpacked Apache Kafka."""

import base64
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from examples.servers.starting import (
    MissingServerError,
    ServerError,
    free_port,
    is_within,
    last_words,
    listens,
)

HOW = "set KAFKA_HOME to an unpacked Apache Kafka, with Java 17 or newer on PATH"
_STOP_S = 20.0
"""An orderly end takes at most this long."""
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


def find_kafka(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the Apache Kafka that `KAFKA_HOME` names.

    Raises:
        MissingServerError: it names none, or there is no Java to run it.
    """
    home = environment.get("KAFKA_HOME")
    if not home:
        raise MissingServerError(f"no Kafka: KAFKA_HOME is not set; {HOW}")
    if not (Path(home) / "libs").is_dir():
        raise MissingServerError(f"no Kafka: KAFKA_HOME={home} has no folder libs; {HOW}")
    if shutil.which("java", path=environment.get("PATH")) is None:
        raise MissingServerError(f"no Kafka: there is no java on PATH; {HOW}")
    return Path(home).resolve()


def broker_properties(
    *, port: int, controller: int, logs: Path, more: Mapping[str, str] | None = None
) -> str:
    """Return the settings of a broker that is its own controller, on two ports of the loopback.

    Args:
        port: of clients.
        controller: the port of the controller.
        logs: the folder of the records.
        more: settings to add, or to put in the place of ours.
    """
    lines = _PROPERTIES.format(port=port, controller=controller, logs=logs).splitlines()
    settings = dict(line.split("=", 1) for line in lines) | dict(more or {})
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def new_cluster() -> str:
    """Return an id for a new cluster."""
    random = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    # A leading hyphen would read as an option.
    return "T" + random[1:]


@dataclass(slots=True)
class KafkaBroker:
    """One broker with its own data folder, which outlives a kill."""

    home: Path
    data: Path
    log: Path
    """The file that takes what it says."""
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    more: Mapping[str, str] = field(default_factory=dict)
    """Settings beside ours, or in their place."""
    format_options: tuple[str, ...] = ()
    """More options of the tool that formats its folder, such as users."""
    cluster: str = field(default_factory=new_cluster)
    """The id of its cluster; brokers of one cluster share it."""
    heap: str = "512m"
    """How large Java's heap may grow."""
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def bootstrap(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self, *, timeout_s: float = 60.0) -> None:
        """Start, on the data that is there, and wait until it takes connections.

        Raises:
            ServerError: it ended, or did not listen in time.
        """
        properties = self.data / "server.properties"
        if not properties.exists():
            self._format(properties)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603  the command is ours
                self._java("kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C reaches a whole group: the order in which things end is ours to decide.
                start_new_session=True,
            )
        self._process = process
        is_over = is_within(timeout_s, lambda: listens(self.port) or process.poll() is not None)
        if not is_over or process.poll() is not None:
            self.kill()
            raise ServerError(f"the Kafka broker did not start: {last_words(self.log)}")

    def kill(self) -> None:
        """End it at once, as a power cut does to a process (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it in order; kill it when it takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
            self._process = None

    def _format(self, properties: Path) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        properties.write_text(
            broker_properties(
                port=self.port,
                controller=self.controller_port,
                logs=self.data / "log",
                more=self.more,
            )
        )
        options = ["-t", self.cluster, "-c", str(properties), *self.format_options]
        done = subprocess.run(  # noqa: S603  the command is ours
            self._java("kafka.tools.StorageTool", "format", *options),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise ServerError(f"the Kafka broker's folder could not be formatted: {done.stderr}")

    def _java(self, *arguments: str) -> list[str]:
        options = ["-Xms128m", f"-Xmx{self.heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        levels = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return ["java", *options, levels, "-cp", f"{self.home}/libs/*", *arguments]
