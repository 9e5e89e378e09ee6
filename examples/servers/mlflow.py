"""One MLflow server of our own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from examples.servers.starting import ServerError, free_port, is_within, last_words, listens

_STOP_S = 10.0
"""An orderly end takes at most this long."""
# Without its job runners: ten processes that nobody here needs.
_OPTIONS = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


@dataclass(slots=True)
class MlflowServer:
    """A server that keeps its rows in `mlflow.db` of a folder."""

    folder: Path
    log: Path
    """The file that takes what it says."""
    port: int = field(default_factory=free_port)
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and go on; its start takes from seconds to a minute."""
        command = [sys.executable, "-m", "mlflow", "server"]
        command += ["--port", str(self.port), "--workers", "1"]
        command += ["--backend-store-uri", f"sqlite:///{self.folder.resolve() / 'mlflow.db'}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  the command is ours
                command,
                # Whatever else it writes, it writes there.
                cwd=self.folder,
                env={**os.environ, **_OPTIONS},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Its workers are ended with it, as one group; and Ctrl-C does not reach them.
                start_new_session=True,
            )

    def wait_ready(self, *, timeout_s: float = 240.0) -> None:
        """Wait until it answers.

        Raises:
            ServerError: it ended, or did not answer in time.
        """
        is_over = is_within(timeout_s, lambda: self._is_healthy() or not self._is_alive())
        if not is_over or not self._is_alive():
            raise ServerError(f"MLflow does not answer at {self.url}: {last_words(self.log)}")

    def kill(self) -> None:
        """End it at once (SIGKILL); the orderly end takes seconds."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End it in order; kill it when it takes too long."""
        self._signal(signal.SIGTERM)
        is_within(_STOP_S, lambda: not self._is_alive() and not listens(self.port))
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _is_healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=2).is_success
        except httpx.HTTPError:
            return False
