"""`tidemill up`: every part, in one command, on one data folder."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.context import Source, load_settings
from tidemill.errors import ConfigurationError

if TYPE_CHECKING:
    from tidemill.cli.settings import Settings
    from tidemill.settings import SharedSettings
    from tidemill.storage.database import Database


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)


def up(
    ctx: typer.Context,
    data: Annotated[Path | None, typer.Option(help="Data folder instead of the file's.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Serving; the feedback API takes the next. 0: free ones.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Settings file instead of ./tidemill.toml.")
    ] = None,
) -> None:
    """Run every part, start again what dies, go on where it was; SIGTERM drains and ends it."""
    root: Source = ctx.find_root().obj
    ctx.find_root().obj = Source(settings or root.settings, data or root.data)
    from tidemill.supervisor.preparation import data_folder_lock

    loaded = load_settings(ctx)
    _require_metrics(loaded.metrics)
    with data_folder_lock(loaded.data):
        _run(loaded, loaded.serving.port if port is None else port, settings or root.settings)


def _require_metrics(path: Path) -> None:
    if not path.is_file():
        raise ConfigurationError(
            f"no metrics file {path}: `tidemill init` writes one to begin with, "
            "or set `metrics` to yours"
        )


def _run(loaded: "Settings", port: int, file: Path | None) -> None:
    from tidemill.process import stop_on_signal
    from tidemill.storage.database import Database
    from tidemill.supervisor import preparation
    from tidemill.supervisor.installation import Installation
    from tidemill.supervisor.parts import build_parts
    from tidemill.supervisor.supervisor import Supervisor

    stop = stop_on_signal()
    shared = loaded.shared
    addresses = preparation.choose_addresses(loaded.serving.host, loaded.ingest.host, port)
    parts = build_parts(_child_environment(shared, file, addresses), addresses)
    database = Database(shared.database_url)
    try:
        _prepare(shared, database, addresses)
        installation = Installation(shared, database, parts, _say)
        Supervisor(
            parts=parts,
            logs=shared.data / "logs",
            say=_say,
            watch=installation.watch,
        ).run(stop)
    finally:
        database.close()


def _prepare(shared: "SharedSettings", database: "Database", addresses: dict[str, str]) -> None:
    from tidemill.contracts.events import TOPICS
    from tidemill.eventlog.opening import open_log
    from tidemill.storage import schema
    from tidemill.subjects import load_or_create_secret
    from tidemill.supervisor import preparation

    state = schema.upgrade(database)
    log = open_log(shared)
    log.create_topics(TOPICS)
    log.close()
    load_or_create_secret(shared)
    keys = preparation.ensure_keys(shared, database)
    preparation.write_private(shared.data / preparation.ADDRESSES_FILE, addresses)
    _say(f"data: {shared.data.resolve()} (schema {state.current})")
    _say(f"completions: {addresses['serving']}/v1 (model {shared.model})")
    _say(f"feedback: {addresses['feedback']}/v1")
    if keys is None:
        _say(f"keys: in {shared.data / preparation.KEYS_FILE}")
    else:
        for scope, key in keys.items():
            _say(f"key for {scope}: {key}")


def _child_environment(
    shared: "SharedSettings", file: Path | None, addresses: dict[str, str]
) -> dict[str, str]:
    from tidemill.supervisor.preparation import port_of

    environment = {
        "TIDEMILL_DATA": str(shared.data),
        "TIDEMILL_SERVING__PORT": str(port_of(addresses["serving"])),
        "TIDEMILL_INGEST__PORT": str(port_of(addresses["feedback"])),
    }
    if file is not None:
        environment["TIDEMILL_SETTINGS"] = str(file)
    return environment


def _say(line: str) -> None:
    # A full disk or a closed terminal takes the words, not the parts.
    with suppress(OSError):
        typer.echo(line)
