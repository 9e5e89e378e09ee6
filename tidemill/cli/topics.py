"""`tidemill topics`: the topics of the log."""

import typer

from tidemill.cli.context import load_settings

_group = typer.Typer(help="Topics of the event log: create them, or see whether they fit.")


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="topics")


@_group.command()
def apply(ctx: typer.Context) -> None:
    """Create the topics that are missing, with the declared number of partitions."""
    from tidemill.contracts.events import TOPICS
    from tidemill.eventlog.opening import open_log

    log = open_log(load_settings(ctx).shared)
    try:
        log.create_topics(TOPICS)
        for topic in TOPICS:
            typer.echo(f"{topic}: {len(log.bounds(topic))} partitions")
    finally:
        log.close()


@_group.command()
def check(ctx: typer.Context) -> None:
    """Exit 0 when every topic has the declared number of partitions, else 1."""
    from tidemill.contracts.events import TOPICS
    from tidemill.errors import EventLogError, EventLogUnavailableError
    from tidemill.eventlog.opening import open_log

    shared = load_settings(ctx).shared
    log = open_log(shared)
    wanted, fits = shared.log.num_partitions, True
    try:
        for topic in TOPICS:
            try:
                found = len(log.bounds(topic))
            except EventLogUnavailableError:
                raise
            except EventLogError as error:
                typer.echo(f"{topic}: {error}")
                fits = False
                continue
            fits = fits and found == wanted
            typer.echo(f"{topic}: {found} partitions, {wanted} declared")
    finally:
        log.close()
    if not fits:
        typer.echo("run `tidemill topics apply` for missing ones; partitions never change later")
        raise typer.Exit(1)
