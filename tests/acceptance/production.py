"""The production column: Kafka, PostgreSQL, an MLflow server, each part a process of its own."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.running_up import METRICS, Product
from tests.servers import free_port
from tests.tiny_model import tiny_base
from tidemill.supervisor.child import Child
from tidemill.supervisor.parts import Part

PARTS = ("serve", "api", "ingest", "learn", "gate")

_SETTINGS = """
data = "{folder}/data"
metrics = "{folder}/metrics.toml"
[log]
kind = "kafka"
bootstrap_servers = "{bootstrap}"
num_partitions = 2
[database]
url = "{database}"
[tracking]
uri = "{mlflow}"
[policy]
device = "cpu"
[policy.lora]
rank = 4
[serving]
port = {serving}
default_max_tokens = 4
poll_s = 0.1
[ingest]
port = {feedback}
close_every_s = 0.1
close_grace_s = 0.2
[learner]
batch_size = 4
min_batch_size = 2
max_batch_wait_s = 1.0
publish_every_experiences = 16
poll_s = 0.1
[learner.optimiser]
lr = 0.02
[gating]
look_every_s = 0.2
[gating.offline]
allow_without_suite = true
[gating.canary]
share = 0.5
settle_s = 0.5
min_pairs = 5
max_lift = 1.0
[gating.guardrails]
malformed_margin = 0.9
length_tolerance = 0.9
length_cap = 8
"""


@dataclass
class Production:
    """One installation on servers; parts are started one by one."""

    folder: Path
    bootstrap: str
    database: str
    mlflow: str
    ports: tuple[int, int] = field(default_factory=lambda: (free_port(), free_port()))
    children: list[Child] = field(default_factory=list)

    @property
    def addresses(self) -> dict[str, str]:
        """Where the HTTP parts listen."""
        serving, feedback = self.ports
        return {
            "serving": f"http://127.0.0.1:{serving}",
            "feedback": f"http://127.0.0.1:{feedback}",
        }

    def prepare(self) -> Product:
        """Write settings and a base, migrate, create topics and keys."""
        (self.folder / "metrics.toml").write_text(METRICS)
        (self.folder / "tidemill.toml").write_text(
            _SETTINGS.format(
                folder=self.folder,
                bootstrap=self.bootstrap,
                database=self.database,
                mlflow=self.mlflow,
                serving=self.ports[0],
                feedback=self.ports[1],
            )
        )
        tiny_base(self.folder / "data" / "base")
        self.command("db", "upgrade")
        self.command("db", "check")
        self.command("topics", "apply")
        self.command("topics", "check")
        scopes = ("completions", "feedback:write")
        keys = {scope: self.command("keys", "create", "--scope", scope) for scope in scopes}
        return Product(
            addresses=self.addresses,
            keys={scope: _key_in(said) for scope, said in keys.items()},
            num_users=10_000,
        )

    def start(self) -> None:
        """Start each part with the command that production uses."""
        (self.folder / "logs").mkdir()
        for name in PARTS:
            command = (sys.executable, "-m", "tidemill.cli.main", name)
            part = Part(name=name, command=command, environment=self._environment)
            self.children.append(Child(part, self.folder / "logs"))

    def require_alive(self) -> None:
        """Fail at once, and say which, when a part has ended."""
        ended = {c.part.name: (c.poll(), c.last_words()) for c in self.children}
        ended = {name: how for name, how in ended.items() if how[0] is not None}
        assert not ended, f"ended by themselves, or by somebody: {ended}"

    def stop(self) -> dict[str, int | None]:
        """SIGTERM to every part; return their exit codes."""
        for child in self.children:
            child.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        for child in self.children:
            if not child.wait(deadline - time.monotonic()):
                child.signal(signal.SIGKILL)
                child.wait(10)
        return {child.part.name: child.poll() for child in self.children}

    def command(self, *arguments: str) -> str:
        """Run a command that must succeed; return what it printed."""
        done = subprocess.run(
            [sys.executable, "-m", "tidemill.cli.main", *arguments],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    @property
    def _environment(self) -> dict[str, str]:
        return {"TIDEMILL_SETTINGS": str(self.folder / "tidemill.toml")}


def _key_in(said: str) -> str:
    return next(word for word in said.split() if word.startswith("tdm_"))
