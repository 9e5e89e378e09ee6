"""The gate as its own process, on a data folder as `tidemill up` leaves it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tiny_model import load_tiny_base
from tidemill.contracts.lifecycle import PolicyStatus
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.snapshots.policies import base_version
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import fetch_heartbeats
from tidemill.storage.schema import upgrade

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SETTINGS = """
environment = "tests.gate_environment:EchoEnvironment"
[tracking]
enabled = false
[policy]
device = "cpu"
[gating]
look_every_s = 0.2
[gating.offline]
num_tasks = 8
min_tasks = 8
threshold = 0.0
max_malformed_rate = 1.0
max_tokens = 8
"""


@pytest.fixture
def registry(tmp_path: Path) -> PolicyRegistry:
    """A data folder with a tiny base, registered as version v0."""
    (tmp_path / "tidemill.toml").write_text(SETTINGS)
    data = tmp_path / ".tidemill"
    base = load_tiny_base(data / "base")
    database = Database(f"sqlite:///{data / 'tidemill.db'}")
    upgrade(database)
    registry = PolicyRegistry(database, model="tide", tenant="default")
    registry.register(
        PolicyRecord(
            version=base_version(base),
            digest=base.digest,
            base_digest=base.digest,
            provenance={"origin": "base"},
        )
    )
    return registry


@contextmanager
def gate(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill.cli.main", "gate", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def finish(folder: Path, *arguments: str) -> tuple[int, str, str]:
    with gate(folder, *arguments) as process:
        output, errors = process.communicate(timeout=120)
        return process.returncode, output, errors


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_process_crowns_the_first_champion_and_stops_on_sigterm(
    registry: PolicyRegistry, tmp_path: Path
) -> None:
    with gate(tmp_path) as process:
        wait_for(lambda: registry.traffic().champion is not None, process)
        with registry.database.reading() as session:
            (sign,) = fetch_heartbeats(session)
        assert (sign.part, sign.ready) == ("gate", True)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    with registry.database.reading() as session:
        (sign,) = fetch_heartbeats(session)
    assert (sign.ready, sign.detail) == (False, "stopped")


def test_one_pass_on_demand(registry: PolicyRegistry, tmp_path: Path) -> None:
    _, output, errors = finish(tmp_path, "run", "--json")
    (line,) = json.loads(output)
    assert "offline: promote" in line, errors
    assert len(registry.list(PolicyStatus.CHAMPION)) == 1
    _, output, _ = finish(tmp_path, "run")
    assert "nothing to judge" in output


def test_a_gate_without_tables_does_not_start(tmp_path: Path) -> None:
    (tmp_path / ".tidemill").mkdir()
    code, _, errors = finish(tmp_path, "run")
    assert code != 0
    assert "tidemill db upgrade" in errors
