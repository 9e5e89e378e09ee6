"""`tidemill ingest` and `tidemill api`: the worker that joins, and the feedback API."""

import typer

from tidemill.cli.context import load_settings


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(ingest)
    app.command()(api)


def ingest(ctx: typer.Context) -> None:
    """Join feedback with interactions into experiences until SIGTERM."""
    from ingest.worker import run

    settings = load_settings(ctx)
    raise typer.Exit(run(settings.shared, settings.ingest))


def api(ctx: typer.Context) -> None:
    """Serve the feedback API until SIGTERM."""
    from ingest.api_process import run

    settings = load_settings(ctx)
    raise typer.Exit(run(settings.shared, settings.ingest))
