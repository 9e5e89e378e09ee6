"""A real installation on the tiny base, and a real `tidemill serve` process on it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import httpx
import openai
import torch

from tests.servers import free_port
from tests.tiny_model import tiny_base
from tidemill.contracts.codec import decode
from tidemill.contracts.events import INTERACTIONS, InteractionServed
from tidemill.eventlog.opening import open_log
from tidemill.policy.adapters import adapter_state, attach_adapter, load_adapter_state
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.settings import LoraSettings, PolicySettings, SharedSettings
from tidemill.snapshots.manifest import Provenance, SnapshotDraft
from tidemill.snapshots.policies import base_version
from tidemill.snapshots.probes import make_probes
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.keys import create_key
from tidemill.storage.schema import upgrade

WHY = Why(reason="test", actor="operator")
LORA = LoraSettings(rank=4, alpha=16.0)

_READY_S = 60.0


@dataclass
class Installation:
    """A data folder with a base, tables, a key and a registry."""

    shared: SharedSettings
    database: Database
    base: BaseModel
    key: str
    seeds: dict[str, int] = field(default_factory=dict)
    """Seed of the random adapter behind each published version."""

    @property
    def registry(self) -> PolicyRegistry:
        """The registry."""
        return PolicyRegistry(self.database, model=self.shared.model, tenant=self.shared.tenant)

    def register_base(self) -> str:
        """Register v0, the base without an adapter."""
        version = base_version(self.base)
        digest = self.base.digest
        self.registry.register(
            PolicyRecord(version=version, digest=digest, base_digest=digest, snapshot=None)
        )
        return version

    def publish(self, seed: int) -> str:
        """Write and register a version with a random adapter whose B is not zero."""
        model = attach_adapter(self.base, LORA, seed=seed)
        state = adapter_state(model)
        generator = torch.Generator().manual_seed(seed)
        state = {
            name: torch.randn(tensor.shape, generator=generator) * 0.1
            for name, tensor in state.items()
        }
        load_adapter_state(model, state)
        model.eval()
        draft = SnapshotDraft(
            number=self.registry.next_number(),
            step=seed,
            parent=None,
            lora=LORA,
            base_digest=self.base.digest,
            tokenizer_digest=self.base.tokenizer_digest,
            probes=make_probes(model, self.base),
            provenance=Provenance(origin="import"),
        )
        manifest = SnapshotStore(self.shared.snapshots_path).write(state, draft)
        self.registry.register(
            PolicyRecord(
                version=manifest.version,
                digest=manifest.digest,
                base_digest=self.base.digest,
                snapshot=manifest.version,
            )
        )
        self.seeds[manifest.version] = seed
        return manifest.version

    def crown(self, seed: int = 1) -> str:
        """Publish a version and make it champion."""
        version = self.publish(seed)
        self.registry.promote(version, why=WHY)
        return version

    def interactions(self) -> list[InteractionServed]:
        """Read back every interaction in the log."""
        log = open_log(self.shared)
        try:
            return [
                decode(InteractionServed, record.value)
                for partition, bounds in log.bounds(INTERACTIONS).items()
                for record in log.read(
                    INTERACTIONS,
                    partition,
                    offset=bounds.first,
                    max_records=max(1, bounds.end - bounds.first),
                )
            ]
        finally:
            log.close()


@contextmanager
def installation(data: Path, **shared: object) -> Iterator[Installation]:
    """Make one in a folder."""
    settings = SharedSettings.model_validate(
        {"data": data, "policy": PolicySettings(device="cpu", lora=LORA), **shared}
    )
    tiny_base(settings.base_path)
    database = Database(settings.database_url)
    upgrade(database)
    with database.transaction() as session:
        _, key = create_key(
            session,
            tenant=settings.tenant,
            scopes=["completions"],
            label="test",
            now=datetime.now(UTC),
        )
    base = load_base(settings.base_path, settings=settings.policy)
    yield Installation(settings, database, base, key)
    database.close()


class ServingProcess:
    """`tidemill serve` on an installation; start, kill, start again."""

    def __init__(self, place: Installation, **settings: object) -> None:
        self.place = place
        self.port = free_port()
        self.settings = {"port": self.port, "poll_s": 0.05, **settings}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, wait_ready: bool = True) -> None:
        """Start it; wait until it is ready, or only until it answers."""
        shared = self.place.shared
        code = (
            "import sys; from serving.server import run; from serving.settings import "
            "ServingSettings; from tidemill.settings import SharedSettings; sys.exit(run("
            "SharedSettings.model_validate_json(sys.argv[1]), "
            "ServingSettings.model_validate_json(sys.argv[2])))"
        )
        from serving.settings import ServingSettings

        serving = ServingSettings.model_validate(self.settings)
        arguments = [shared.model_dump_json(), serving.model_dump_json()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            env={**os.environ, "TIDEMILL_LOG_LEVEL": "WARNING"},
        )
        self.wait_for("/ready" if wait_ready else "/health")

    def wait_for(self, path: str) -> None:
        """Wait until a path answers 200."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            assert self.process is not None
            assert self.process.poll() is None, "the server ended"
            try:
                if httpx.get(self.url + path, timeout=5).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"{path} did not answer 200 within {_READY_S} s")

    def wait_for_versions(self, *versions: str) -> None:
        """Wait until exactly these versions serve, champion first."""
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            if httpx.get(self.url + "/ready").json()["versions"] == list(versions):
                return
            time.sleep(0.02)
        raise AssertionError(f"{versions} did not come to serve within {_READY_S} s")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask it to drain and end; return its exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        code = self.process.wait(timeout=60)
        self.process = None
        return code

    def client(self, **options: object) -> openai.OpenAI:
        """Return the official client, pointed here."""
        values = {"base_url": f"{self.url}/v1", "api_key": self.place.key, "max_retries": 0}
        return openai.OpenAI(**(values | options))  # type: ignore[arg-type]

    def async_client(self, **options: object) -> openai.AsyncOpenAI:
        """Return the official asynchronous client, pointed here."""
        values = {"base_url": f"{self.url}/v1", "api_key": self.place.key, "max_retries": 0}
        return openai.AsyncOpenAI(**(values | options))  # type: ignore[arg-type]


@contextmanager
def serving(place: Installation, **settings: object) -> Iterator[ServingProcess]:
    """Run a server while the block runs."""
    server = ServingProcess(place, **settings)
    server.start()
    try:
        yield server
    finally:
        server.stop()
