"""`tidemill serve`, `tidemill api` and `tidemill ingest`: one part each, until SIGTERM."""

import typer

from tidemill.cli.context import load_settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("serve")(serve)
    app.command("api")(api)
    app.command("ingest")(ingest)


def serve(ctx: typer.Context) -> None:
    """Serve completions in the shape of the OpenAI API."""
    settings = load_settings(ctx)
    from serving.server import run

    raise typer.Exit(run(settings.shared, settings.serving))


def api(ctx: typer.Context) -> None:
    """Serve the feedback API."""
    settings = load_settings(ctx)
    from ingest.api_process import run

    raise typer.Exit(run(settings.shared, settings.ingest))


def ingest(ctx: typer.Context) -> None:
    """Join feedback to interactions, make rewards, keep the ledger."""
    settings = load_settings(ctx)
    from ingest.worker import run

    raise typer.Exit(run(settings.shared, settings.ingest))
