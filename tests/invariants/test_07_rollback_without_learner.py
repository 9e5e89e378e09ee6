"""Invariant 7: a rollback needs no learner, no gate process and no network beyond the registry and
the snapshot store.

A process that has imported nothing of learner, gate, tracking or torch moves one registry row; the
server, alone with database and snapshots, follows and answers with the version before.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from serving.callers import VERSION_HEADER
from tests.serving_process import WHY, ServingThread, installation, serving

_ROLL_BACK = """
import socket, sys
def refuse(*_):
    raise OSError("no network in this process")
socket.socket.connect = refuse
from tidemill.registry import PolicyRegistry, Why
from tidemill.storage.database import Database
registry = PolicyRegistry(Database(sys.argv[1]), model="tide", tenant="default")
print(registry.roll_back(why=Why(reason="it does harm", actor="operator")))
for name in ("learner", "gating", "ingest", "mlflow", "torch", "kafka"):
    assert name not in sys.modules, name
"""


def roll_back(url: str) -> str:
    """Roll back in a process of its own; return the restored version."""
    done = subprocess.run(
        [sys.executable, "-c", _ROLL_BACK, url], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(server: ServingThread) -> str:
    """Ask once; return the version that answered."""
    with server.client() as client:
        response = client.chat.completions.with_raw_response.create(
            model="tide", messages=[{"role": "user", "content": "hello"}], max_tokens=4
        )
    return response.headers[VERSION_HEADER]


def test_serving_follows_a_rollback_that_only_moved_a_registry_row(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        good = place.crown(seed=1)
        bad = place.crown(seed=2)
        # The learner's and the tracking store's folders are not even there.
        for name in ("checkpoints", "mlflow.db"):
            shutil.rmtree(place.shared.data / name, ignore_errors=True)
        with serving(place) as server:
            assert ask(server) == bad

            assert roll_back(place.shared.database_url) == good
            server.wait_for_versions(good)

            assert ask(server) == good


def test_a_rollback_during_a_canary_ends_it_too(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        good, bad, challenger = place.crown(seed=1), place.crown(seed=2), place.publish(seed=3)
        place.registry.start_canary(challenger, share=0.5, alpha=0.05, why=WHY)
        with serving(place) as server:
            server.wait_for_versions(bad, challenger)

            assert roll_back(place.shared.database_url) == good
            server.wait_for_versions(good)

            assert {ask(server) for _ in range(6)} == {good}
