"""A real `tidemill up` on a tiny base, and a product that talks to it and keeps the receipts."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from sqlalchemy import text

from tests.tiny_model import tiny_base
from tidemill.cli.settings import read_settings
from tidemill.eventlog.opening import open_log
from tidemill.ledger import take_ledger
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.supervisor.health import read_signs

PARTS = ("ingest-api", "ingest-worker", "serving", "learner", "gate")
PATIENCE_S = 150.0

SETTINGS = """
[policy]
device = "cpu"
[policy.lora]
rank = 4
[serving]
default_max_tokens = 4
poll_s = 0.1
[ingest]
close_every_s = 0.1
close_grace_s = 0.2
[learner]
batch_size = 4
min_batch_size = 2
max_batch_wait_s = 1.0
uses_per_experience = 2
publish_every_experiences = 24
poll_s = 0.1
[gating]
look_every_s = 0.2
[gating.offline]
allow_without_suite = true
[gating.canary]
share = 0.5
settle_s = 0.5
"""
METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 1.0\n'


def wait_until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait for a condition; say what did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        time.sleep(0.05)


def write_project(folder: Path, *, servers: str = "") -> Path:
    """Write settings, metrics and a tiny base; return the data folder.

    `servers` are the blocks that name servers; without them all data lies in that folder.
    """
    (folder / "tidemill.toml").write_text(SETTINGS + servers)
    (folder / "metrics.toml").write_text(METRICS)
    tiny_base(folder / ".tidemill" / "base")
    return folder / ".tidemill"


@dataclass
class Up:
    """One `tidemill up` in a project's folder."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None
    _database: Database | None = None

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self.folder / ".tidemill"

    @property
    def output(self) -> str:
        """What it said so far, over all starts."""
        return (self.folder / "up.txt").read_text()

    @property
    def shared(self) -> SharedSettings:
        """What its parts agree on."""
        shared = read_settings(self.folder / "tidemill.toml").shared
        # The file names no folder: its default is one of the working folder, which is not ours.
        return shared.model_copy(update={"data": self.data})

    @property
    def database(self) -> Database:
        """The rows, seen from outside."""
        if self._database is None:
            self._database = Database(self.shared.database_url)
        return self._database

    def start(self) -> "Up":
        """Start it on free ports."""
        (self.data / "addresses.json").unlink(missing_ok=True)
        with (self.folder / "up.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tidemill.cli.main", "up", "--port", "0"],
                cwd=self.folder,
                stdout=output,
                stderr=output,
            )
        wait_until(lambda: (self.data / "addresses.json").exists(), "no addresses")
        return self

    def stop(self) -> int:
        """SIGTERM; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on the same project."""
        return subprocess.run(
            [sys.executable, "-m", "tidemill.cli.main", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )

    def end(self) -> None:
        """Close what is open, and kill what a failed test left."""
        if self._database is not None:
            self._database.close()
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pid(self, part: str) -> int | None:
        """The process id of a part that is ready; None = it is not."""
        sign = read_signs(self.database).get(part)
        return sign.pid if sign is not None and sign.ready else None

    def kill(self, part: str) -> None:
        """kill -9 one part, and wait until another process of it is ready."""
        old = self.pid(part)
        assert old is not None, f"{part} is not ready: {self.output}"
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: self.pid(part) not in (None, old), f"{part} did not come back")

    def product(self) -> "Product":
        """Return a product that talks to this installation."""
        return Product(
            addresses=json.loads((self.data / "addresses.json").read_text()),
            keys=json.loads((self.data / "keys.json").read_text()),
        )


@dataclass
class Product:
    """Asks for completions and sends feedback; what was acknowledged is kept."""

    addresses: dict[str, str]
    keys: dict[str, str]
    judge: Callable[[int, str], bool] = lambda number, _version: number % 3 != 0
    """What the user of a turn thinks of the answer of a version."""
    num_users: int = 17
    interactions: list[str] = field(default_factory=list)
    feedback: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def wait_for_answers(self) -> None:
        """Wait until serving says that it is ready."""
        wait_until(self._is_ready, "serving is not ready")

    def talk(self) -> None:
        """Go through one turn: a completion and its feedback, each until it is acknowledged."""
        with httpx.Client(timeout=10) as http:
            served = self._until_acknowledged(lambda: self._complete(http))
            interaction = served.headers["x-tidemill-interaction"]
            self.interactions.append(interaction)
            body = {
                "feedback_id": str(uuid4()),
                "interaction_id": interaction,
                "metric": "accepted",
                "value": self.judge(
                    len(self.interactions), served.headers["x-tidemill-policy-version"]
                ),
                "source": "end_user",
            }
            self._until_acknowledged(lambda: self._send(http, body))
            self.feedback.append(str(body["feedback_id"]))

    def start_talking(self) -> None:
        """Talk in a thread of its own until `finish`."""
        self._thread = threading.Thread(target=self._keep_talking, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """End the current turn and stop."""
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _keep_talking(self) -> None:
        while not self._stop.is_set():
            self.talk()

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.addresses['serving']}/ready", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def _complete(self, http: httpx.Client) -> httpx.Response:
        number = len(self.interactions)
        return http.post(
            f"{self.addresses['serving']}/v1/chat/completions",
            headers={
                "authorization": f"Bearer {self.keys['completions']}",
                "x-tidemill-consent": "yes",
                "x-tidemill-subject": f"user-{number % self.num_users}",
                "x-tidemill-context": f"context-{number % 3}",
            },
            json={"model": "tide", "messages": [{"role": "user", "content": f"turn {number}"}]},
        )

    def _send(self, http: httpx.Client, body: dict[str, Any]) -> httpx.Response:
        return http.post(
            f"{self.addresses['feedback']}/v1/feedback",
            headers={"authorization": f"Bearer {self.keys['feedback:write']}"},
            json=body,
        )

    @staticmethod
    def _until_acknowledged(ask: Callable[[], httpx.Response]) -> httpx.Response:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = ask()
            except httpx.TransportError as error:
                told = repr(error)
            else:
                if answer.is_success:
                    return answer
                told = f"{answer.status_code}: {answer.text}"
                assert answer.status_code in (409, 429, 500, 503), told
            assert time.monotonic() < deadline, f"never acknowledged: {told}"
            time.sleep(0.1)


def settle(up: Up) -> None:
    """Wait until every window is closed and nothing waits in the log; then all must balance."""
    log = open_log(up.shared)

    def is_settled() -> bool:
        ledger = take_ledger(up.database, log)
        waiting = sum(topic["waiting"] for topic in ledger.records.values())
        return not (waiting or ledger.interactions["open"] or ledger.feedback["pending"])

    try:
        wait_until(is_settled, "the ledger did not settle")
    finally:
        log.close()
    ledger = up.command("ledger")
    assert ledger.returncode == 0, ledger.stdout


def require_everything_stored(database: Database, product: Product) -> None:
    """Look for the row of everything that was acknowledged to a product."""
    with database.reading() as session:
        rows = session.execute(text("SELECT interaction_id, state FROM interactions"))
        states = {row[0]: row[1] for row in rows}
        rows = session.execute(text("SELECT feedback_id, state FROM feedback"))
        feedback = {row[0]: row[1] for row in rows}
    assert set(product.interactions) <= set(states)
    assert set(product.feedback) <= set(feedback)
    # A window may have closed while the part that should take the feedback was dead.
    assert {feedback[one] for one in product.feedback} <= {"joined", "late"}
