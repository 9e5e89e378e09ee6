"""Tidemill as the demo runs it: `tidemill up` as a process of its own, commands beside it."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from examples.command_assistant.client import Access
from tidemill.cli.settings import read_settings


class DemoError(Exception):
    """The demo cannot go on; the message says what to look at."""


@dataclass(slots=True)
class Service:
    """One installation in the demo's folder."""

    folder: Path
    settings: Path
    _up: asyncio.subprocess.Process | None = field(default=None, init=False)

    @property
    def logs(self) -> Path:
        """Where every process writes what it has to say."""
        return self.folder / "logs"

    @property
    def database_url(self) -> str:
        """Where the rows are."""
        return read_settings(self.settings).shared.database_url

    async def call(self, *arguments: str, codes: Sequence[int] = (0,), num_threads: int = 1) -> str:
        """Run one command of `tidemill` and return what it printed.

        Raises:
            DemoError: its exit code is none of `codes`.
        """
        process = await self._start(
            *arguments, stdout=asyncio.subprocess.PIPE, num_threads=num_threads
        )
        output, _ = await process.communicate()
        text = output.decode(errors="replace")
        if process.returncode not in codes:
            log = self.logs / "commands.log"
            raise DemoError(
                f"`tidemill {' '.join(arguments)}` ended with {process.returncode}: "
                f"{text.strip()[-500:]} (see {log})"
            )
        return text

    async def start(self) -> None:
        """Start `tidemill up` on free ports."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / "up.log").open("ab") as log:
            self._up = await self._start("up", "--port", "0", stdout=log.fileno())

    async def access(self) -> Access:
        """Wait for addresses and keys.

        Raises:
            DemoError: `tidemill up` ended.
        """
        while True:
            self.check()
            try:
                return Access.of(self.folder)
            except (OSError, ValueError):
                await asyncio.sleep(0.1)

    async def wait_ready(self, url: str, *, timeout_s: float) -> None:
        """Wait until a part says that it is ready.

        Raises:
            DemoError: it did not in time.
        """
        loop = asyncio.get_running_loop()
        deadline, answer = loop.time() + timeout_s, "no answer"
        async with httpx.AsyncClient(timeout=5.0) as client:
            while loop.time() < deadline:
                self.check()
                try:
                    response = await client.get(f"{url}/ready")
                except httpx.HTTPError as error:
                    answer = str(error)
                else:
                    if response.status_code == 200:
                        return
                    answer = response.text[:300]
                await asyncio.sleep(0.2)
        raise DemoError(f"{url} is not ready after {timeout_s:.0f} s: {answer} (see {self.logs})")

    def check(self) -> None:
        """Raise when `tidemill up` is gone.

        Raises:
            DemoError: it is.
        """
        if self._up is None or self._up.returncode is not None:
            raise DemoError(f"`tidemill up` ended; see {self.logs / 'up.log'}")

    async def stop(self) -> None:
        """End `tidemill up`: it drains; after half a minute it is killed."""
        if self._up is None or self._up.returncode is not None:
            return
        self._up.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._up.wait(), timeout=30)
        except TimeoutError:
            self._up.kill()
            await self._up.wait()

    async def _start(
        self, *arguments: str, stdout: int, num_threads: int = 1
    ) -> asyncio.subprocess.Process:
        self.logs.mkdir(parents=True, exist_ok=True)
        root = Path(__file__).resolve().parents[2]
        environment = os.environ | {
            # Tables go into a file: wide enough for whole versions.
            "COLUMNS": "170",
            "TIDEMILL_SETTINGS": str(self.settings.resolve()),
            "TIDEMILL_POLICY__NUM_THREADS": str(num_threads),
            # The environment lives under `examples/`, which is not part of the package.
            "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")]),
        }
        with (self.logs / "commands.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidemill.cli.main",
                *arguments,
                stdout=stdout,
                stderr=log,
                env=environment,
                # Ctrl-C reaches the demo alone, which then ends the service in order.
                start_new_session=True,
            )
