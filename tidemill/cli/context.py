"""What every command gets from the options before its name: which settings to read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tidemill.cli.settings import Settings
    from tidemill.settings import SharedSettings
    from tidemill.storage.database import Database


@dataclass(frozen=True, slots=True)
class Source:
    """Where settings come from."""

    settings: Path | None = None
    """The file; None = `tidemill.toml` in the working directory, where there is one."""
    data: Path | None = None
    """The data folder; None = what the settings say."""


def load_settings(ctx: typer.Context) -> "Settings":
    """Return the settings that the command line names.

    Raises:
        ConfigurationError: they are wrong.
    """
    # Imported here, not above: `tidemill --help` must not wait for pydantic-settings.
    from tidemill.cli.settings import read_settings

    source = ctx.find_root().obj or Source()
    if source.data is not None:
        # Through the environment, so that it wins over the file and child processes see it.
        os.environ["TIDEMILL_DATA"] = str(source.data)
    return read_settings(source.settings)


@contextmanager
def opened_database(shared: "SharedSettings") -> Iterator["Database"]:
    """Yield the installation's database, whose tables are those of this release.

    Raises:
        ConfigurationError: they are not.
    """
    from tidemill.storage.database import Database
    from tidemill.storage.schema import require_current_schema

    database = Database(shared.database_url)
    try:
        require_current_schema(database)
        yield database
    finally:
        database.close()
