"""`tidemill gate`: judge candidates, as a process or once."""

from typing import Annotated

import typer

from tidemill.cli.context import load_settings


def register(app: typer.Typer) -> None:
    """Add the commands."""
    gate = typer.Typer(
        help="Judge candidates until SIGTERM; `tidemill gate run` makes one pass.",
        invoke_without_command=True,
    )
    gate.callback()(_gate)
    gate.command("run")(_run)
    app.add_typer(gate, name="gate")


def _gate(ctx: typer.Context) -> None:
    """Judge candidates until SIGTERM: offline suite, canary, promotion, rollback."""
    if ctx.invoked_subcommand is not None:
        return
    settings = load_settings(ctx)
    from gating.worker import run

    raise typer.Exit(run(settings.shared, settings.gating))


def _run(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="A list, for programs.")] = False,
) -> None:
    """Make one pass now and say what happened."""
    settings = load_settings(ctx)
    import json

    from gating.worker import run_once

    happened = run_once(settings.shared, settings.gating)
    if as_json:
        typer.echo(json.dumps(happened))
        return
    for line in happened or ["nothing to judge: no candidate, no canary, no new champion"]:
        typer.echo(line)
