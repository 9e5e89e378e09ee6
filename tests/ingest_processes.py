"""The ingest API and worker as real processes that a test may kill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from sqlalchemy import select

from ingest.settings import IngestSettings
from tests.servers import free_port
from tidemill.eventlog.base import EventLog
from tidemill.eventlog.opening import open_log
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import LogOffsetRow

METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 2\ndefault = false\n'

_PATIENCE_S = 60.0


def start_part(
    part: str,
    shared: SharedSettings,
    settings: IngestSettings,
    *,
    ahead_s: float = 0.0,
    output: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start `worker` or `api_process`.

    Args:
        part: the module of ingest that runs it.
        shared: what every part agrees on.
        settings: of ingest.
        ahead_s: how far the API's clock goes ahead of the machine's.
        output: the file that takes what it says; None = that of this process.
    """
    documents = [shared.model_dump_json(), settings.model_dump_json()]
    command = [sys.executable, "-m", "tests.ingest_part", part, *documents, str(ahead_s)]
    with ExitStack() as stack:
        taken = None if output is None else stack.enter_context(output.open("ab"))
        return subprocess.Popen(
            command, env=os.environ | {"TIDEMILL_LOG_LEVEL": "ERROR"}, stdout=taken, stderr=taken
        )


@dataclass
class Installation:
    """A data folder with tables and metrics, and the processes on it."""

    shared: SharedSettings
    settings: IngestSettings
    database: Database
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where the API listens."""
        return f"http://127.0.0.1:{self.settings.port}"

    def start(self, module: str) -> subprocess.Popen[bytes]:
        """Start `worker` or `api_process`."""
        process = start_part(module, self.shared, self.settings)
        self.running.append(process)
        return process

    def start_api(self) -> subprocess.Popen[bytes]:
        """Start the API and wait until it is ready."""
        process = self.start("api_process")
        deadline = time.monotonic() + _PATIENCE_S
        with httpx.Client(base_url=self.url) as http:
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    if http.get("/ready").status_code == 200:
                        return process
                except httpx.TransportError:
                    time.sleep(0.05)
        raise AssertionError(f"the API did not start; exit code {process.poll()}")

    def num_processed(self) -> int:
        """How many log records the worker has taken into rows."""
        with self.database.reading() as session:
            return sum(session.scalars(select(LogOffsetRow.num_records)))

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """kill -9."""
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        self.running.remove(process)

    def stop(self, process: subprocess.Popen[bytes]) -> int:
        """SIGTERM; return the exit code."""
        process.terminate()
        code = process.wait(30)
        self.running.remove(process)
        return code

    @contextmanager
    def open_log(self) -> Iterator[EventLog]:
        """Open the log."""
        log = open_log(self.shared)
        try:
            yield log
        finally:
            log.close()


@contextmanager
def installation(folder: Path, settings: IngestSettings | None = None) -> Iterator[Installation]:
    """Make an installation; whatever still runs at the end is killed."""
    metrics = folder / "metrics.toml"
    metrics.write_text(METRICS)
    shared = SharedSettings(data=folder / "data", metrics=metrics)
    shared.data.mkdir()
    database = Database(shared.database_url)
    upgrade(database)
    given = settings or IngestSettings(
        require_key=False,
        port=free_port(),
        close_grace_s=0.2,
        poll_records=20,
        batch_every_s=0,
        poll_timeout_s=0.05,
        count_every_s=0.2,
    )
    made = Installation(shared, given, database)
    try:
        yield made
    finally:
        for process in list(made.running):
            made.kill(process)
        database.close()
