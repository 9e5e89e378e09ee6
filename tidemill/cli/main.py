"""The root command. Each module named here adds its commands through `register(app)`.

Exit codes: 0 good, 1 the answer is no, 2 usage or settings, 3 could not tell.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tidemill import __version__
from tidemill.cli.context import Source
from tidemill.errors import ConfigurationError, RegistryError, SnapshotError, TidemillError

_COMMAND_MODULES = (
    "init",
    "up",
    "status",
    "base",
    "serve",
    "learn",
    "gate",
    "releases",
    "ledger",
    "dead_letters",
    "quarantine",
    "log",
    "keys",
    "db",
    "topics",
)

EXIT_NO = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3

app = typer.Typer(
    name="tidemill",
    help="Online learning for language models from production feedback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    settings: Annotated[
        Path | None,
        typer.Option(envvar="TIDEMILL_SETTINGS", help="Settings file instead of ./tidemill.toml."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Data folder instead of the file's.")] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say it.")
    ] = False,
) -> None:
    """Online learning for language models from production feedback."""
    del version
    ctx.obj = Source(settings=settings, data=data)


def _register_all() -> None:
    for name in _COMMAND_MODULES:
        if importlib.util.find_spec(f"tidemill.cli.{name}") is not None:
            importlib.import_module(f"tidemill.cli.{name}").register(app)


_register_all()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors of ours become one line on stderr and an exit code."""
    try:
        app(args=arguments)
    except TidemillError as error:
        typer.secho(f"tidemill: {error}", err=True, fg="red")
        return exit_code_of(error)
    return 0


def exit_code_of(error: TidemillError) -> int:
    """Return the exit code that stands for this error."""
    if isinstance(error, ConfigurationError):
        return EXIT_USAGE
    if isinstance(error, RegistryError | SnapshotError):
        return EXIT_NO
    return EXIT_UNKNOWN


if __name__ == "__main__":
    sys.exit(main())
