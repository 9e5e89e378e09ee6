"""A real installation on the tiny base, and the serving part on it, as threads or as a process."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import openai
import torch
from torch import nn

from serving.server import Server
from serving.settings import ServingSettings
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

_PATIENCE_S = 120.0

_MAIN = """
import sys
from serving.server import run
from serving.settings import ServingSettings
from tidemill.settings import SharedSettings
shared = SharedSettings.model_validate_json(sys.argv[1])
sys.exit(run(shared, ServingSettings.model_validate_json(sys.argv[2])))
"""


@dataclass
class Installation:
    """A data folder with a base, tables, a key and a registry."""

    shared: SharedSettings
    database: Database
    base: BaseModel
    key: str

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

    def publish(self, seed: int, *, probes_of: int | None = None) -> str:
        """Write and register a version with a random adapter whose B is not zero.

        `probes_of`: the seed of another adapter that computes the probes, wrongly then.
        """
        state = adapter_state(_random_policy(self.base, seed))
        prober = _random_policy(self.base, seed if probes_of is None else probes_of)
        draft = SnapshotDraft(
            number=self.registry.next_number(),
            step=seed,
            parent=None,
            lora=LORA,
            base_digest=self.base.digest,
            tokenizer_digest=self.base.tokenizer_digest,
            probes=make_probes(prober, self.base),
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


def _random_policy(base: BaseModel, seed: int) -> nn.Module:
    model = attach_adapter(base, LORA, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    state = {
        name: torch.randn(tensor.shape, generator=generator) * 0.1
        for name, tensor in adapter_state(model).items()
    }
    load_adapter_state(model, state)
    return model.eval()


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
    try:
        yield Installation(settings, database, base, key)
    finally:
        database.close()


class _Reachable:
    """What can be asked of a server, however it runs."""

    def __init__(self, place: Installation, **settings: object) -> None:
        self.place = place
        self.settings = ServingSettings.model_validate(
            {"port": free_port(), "poll_s": 0.05, **settings}
        )

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.settings.port}"

    def wait_until(self, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until `/ready` says what is wanted, and return it."""
        deadline, body = time.monotonic() + _PATIENCE_S, {}
        # One client, no certificates: reading those would cost more than all the rest.
        with httpx.Client(verify=False, timeout=5) as client:  # noqa: S501
            while time.monotonic() < deadline:
                with suppress(httpx.TransportError):
                    body = client.get(f"{self.url}/ready").json()
                    if holds(body):
                        return body
                time.sleep(0.02)
        raise AssertionError(f"not within {_PATIENCE_S} s; last: {body}")

    def wait_for_versions(self, *versions: str) -> None:
        """Wait until exactly these versions serve, champion first."""
        self.wait_until(lambda body: body["versions"] == list(versions))

    def client(self, **options: Any) -> openai.OpenAI:
        """Return the official client, pointed here."""
        return openai.OpenAI(**(self._options() | options))

    def async_client(self, **options: Any) -> openai.AsyncOpenAI:
        """Return the official asynchronous client, pointed here."""
        return openai.AsyncOpenAI(**(self._options() | options))

    def _options(self) -> dict[str, Any]:
        return {"base_url": f"{self.url}/v1", "api_key": self.place.key, "max_retries": 0}


class ServingThread(_Reachable):
    """The serving part on threads of this process."""

    def __init__(self, place: Installation, **settings: object) -> None:
        super().__init__(place, **settings)
        self.server = Server(place.shared, self.settings)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.server.run, args=(self._stop,))

    def start(self) -> None:
        """Start it."""
        self._thread.start()

    def stop(self) -> None:
        """Drain and end it."""
        self._stop.set()
        self._thread.join()


class ServingProcess(_Reachable):
    """The serving part as its own process, which can be killed."""

    process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Start it."""
        arguments = [self.place.shared.model_dump_json(), self.settings.model_dump_json()]
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, *arguments],
            env={**os.environ, "TIDEMILL_LOG_LEVEL": "WARNING"},
        )

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to drain and end; return its exit code."""
        self.process.terminate()
        return self.process.wait(timeout=60)


@contextmanager
def serving(
    place: Installation, *, wait: bool = True, **settings: object
) -> Iterator[ServingThread]:
    """Serve on threads of this process while the block runs; ready when it begins, if it can."""
    server = ServingThread(place, **settings)
    server.start()
    try:
        if wait and place.registry.champion() is not None:
            server.wait_until(lambda body: body["ready"])
        yield server
    finally:
        server.stop()
