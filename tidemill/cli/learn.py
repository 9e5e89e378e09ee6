"""Commands of the learner: `learn`, `backfill`, `drill`."""

from enum import StrEnum
from typing import Annotated

import typer

from tidemill.cli.context import load_settings


class Drill(StrEnum):
    """Where the bad version is meant to be caught."""

    OFFLINE = "offline"
    CANARY = "canary"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("learn")(learn)
    app.command("backfill")(backfill)
    app.command("drill")(drill)


def learn(ctx: typer.Context) -> None:
    """Learn from live experiences and publish candidates, until SIGTERM."""
    settings = load_settings(ctx)
    from learner.worker import run

    raise typer.Exit(run(settings.shared, settings.learner))


def backfill(
    ctx: typer.Context,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimiser steps instead of the settings' number.")
    ] = None,
) -> None:
    """Learn from simulated rollouts on the environment and publish one candidate."""
    settings = load_settings(ctx)
    from learner.backfill.worker import run_backfill

    def tell(number: int, metrics: dict[str, float]) -> None:
        typer.echo(
            f"step {number + 1}: score {metrics['score']:.3f}, "
            f"malformed {metrics['malformed']:.3f}, trained on {metrics['num_trained']:.0f}"
        )

    record = run_backfill(settings.shared, settings.backfill, steps=steps, tell=tell)
    typer.echo(f"published {record.version} from {record.parent}")


def drill(
    ctx: typer.Context,
    kind: Annotated[Drill, typer.Argument(help="Where the bad version should be caught.")],
) -> None:
    """Publish a bad version on purpose, to see the gate catch it."""
    settings = load_settings(ctx)
    from learner.drill import DrillKind, run_drill

    record = run_drill(settings.shared, settings.backfill, DrillKind(kind.value))
    typer.echo(f"published {record.version} from {record.parent}, made worse on purpose")
