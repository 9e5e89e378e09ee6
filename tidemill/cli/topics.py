"""`tidemill topics`: the topics of the log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from tidemill.cli.context import load_settings

if TYPE_CHECKING:
    from tidemill.eventlog.base import Drift, EventLog

_group = typer.Typer(help="Topics of the event log: create them, or see whether they fit.")


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="topics")


@_group.command()
def apply(ctx: typer.Context) -> None:
    """Create what is missing and set what is otherwise; exit 1 when something else is left.

    The number of partitions and of copies stays as it is.
    """
    from tidemill.contracts.events import TOPICS

    with _opened(ctx) as log:
        before = log.find_drift(TOPICS)
        left = log.settle_topics(TOPICS)
    for drift in before:
        if drift not in left:
            typer.echo(f"put right: {drift}")
    _conclude(left)


@_group.command()
def check(ctx: typer.Context) -> None:
    """Exit 0 when every topic is as declared; else 1, with all that is otherwise."""
    from tidemill.contracts.events import TOPICS

    with _opened(ctx) as log:
        drifts = log.find_drift(TOPICS)
    _conclude(drifts)


@contextmanager
def _opened(ctx: typer.Context) -> "Iterator[EventLog]":
    from tidemill.eventlog.opening import open_log

    log = open_log(load_settings(ctx).shared)
    try:
        yield log
    finally:
        log.close()


def _conclude(drifts: "list[Drift]") -> None:
    from tidemill.contracts.events import TOPICS

    for topic in TOPICS:
        if not any(drift.topic == topic for drift in drifts):
            typer.echo(f"{topic}: as declared")
    for drift in drifts:
        typer.echo(str(drift))
    if any(drift.is_repairable for drift in drifts):
        typer.echo("run `tidemill topics apply`")
    if not all(drift.is_repairable for drift in drifts):
        typer.echo(
            "partitions and copies stay as they are: a record's partition is a function of its "
            "key, and copies are moved with Kafka's own tools; declare what there is, or take new "
            "topics"
        )
    if drifts:
        raise typer.Exit(1)
