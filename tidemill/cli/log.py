"""`tidemill log tail|stats|replay`: look at the event log, and make rows of it again."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.context import load_settings, opened_database
from tidemill.contracts.events import TOPICS

if TYPE_CHECKING:
    from ingest.comparison import Comparison
    from ingest.replay import Replay
    from tidemill.cli.settings import Settings
    from tidemill.eventlog.base import EventLog, Record
    from tidemill.eventlog.following import Follower
    from tidemill.lag import PartitionLag

_group = typer.Typer(help="The event log: follow it, measure it, replay it.", no_args_is_help=True)
_PREFIX = "tidemill."
_LOOK_EVERY_S = 0.2
_MAX_DIFFERENCES = 20
"""Shown to people; --json has them all."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="log")


@_group.command()
def tail(  # noqa: PLR0913  typer reads the options from the parameters
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(help="Such as feedback, or tidemill.feedback.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="All that is kept, then what comes.")
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="End at the last record that is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Print a topic's records as they come, one a line, until Ctrl-C."""
    name = topic if topic.startswith(_PREFIX) else _PREFIX + topic
    if name not in TOPICS:
        raise typer.BadParameter(f"no topic {topic!r}; there are: {', '.join(TOPICS)}")
    from tidemill.cli.records import describe_record, record_to_json
    from tidemill.eventlog.following import Follower

    with _log(ctx) as (log, _):
        follower = Follower(log, name, from_beginning=from_beginning)
        records = _follow(follower, limit=limit, no_follow=no_follow)
        try:
            for record in records:
                text = json.dumps(record_to_json(record)) if as_json else describe_record(record)
                typer.echo(text)
        except KeyboardInterrupt:
            return


def _follow(follower: "Follower", *, limit: int | None, no_follow: bool) -> Iterator["Record"]:
    left = limit
    while True:
        records = follower.poll()
        yield from records if left is None else records[:left]
        if left is not None:
            left -= min(left, len(records))
        if left == 0 or (no_follow and not records):
            return
        if not records:
            time.sleep(_LOOK_EVERY_S)


@_group.command()
def stats(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show what every partition holds, and how far ingest is behind in records and seconds."""
    from tidemill.lag import measure_lag

    with _log(ctx) as (log, settings), opened_database(settings.shared) as database:
        found = measure_lag(
            database,
            log,
            TOPICS,
            group=settings.ingest.consumer_group,
            now=datetime.now(UTC),
        )
    if as_json:
        rows = [asdict(one) | {"num_records": one.num_records} for one in found]
        typer.echo(json.dumps(rows, indent=2))
    else:
        _print(found)


@_group.command()
def replay(
    ctx: typer.Context,
    into: Annotated[
        str, typer.Option(help="An empty database: sqlite:///FILE or postgresql://...")
    ],
    compare: Annotated[
        bool, typer.Option("--compare", help="Exit 1 when the installation's database differs.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make all experiences again from the log's first record, and print their digest."""
    from ingest.replay import compare_replay, prepare_fresh, replay_log, reuse_judgements
    from tidemill.errors import ConfigurationError
    from tidemill.rewards.metrics_file import load_metrics
    from tidemill.rewards.verifiers import load_verifiers
    from tidemill.storage.database import Database

    with _log(ctx) as (log, settings):
        metrics = load_metrics(settings.metrics)
        fresh = Database(into)
        if fresh.url == Database(settings.database_url).url:
            raise ConfigurationError(
                "--into is the installation's own database; give an empty one of its own"
            )
        try:
            prepare_fresh(fresh)
            if metrics.judges:
                with opened_database(settings.shared) as live:
                    reuse_judgements(live, fresh)
            made = replay_log(
                log,
                fresh,
                settings=settings.ingest,
                metrics=metrics,
                verifiers=load_verifiers(metrics),
            )
            compared = None
            if compare:
                with opened_database(settings.shared) as live:
                    compared = compare_replay(made, live)
        finally:
            fresh.close()
    _tell(made, compared, as_json=as_json)
    if compared is not None and compared.differences:
        raise typer.Exit(1)


def _tell(made: "Replay", compared: "Comparison | None", *, as_json: bool) -> None:
    if as_json:
        facts = {
            "records": made.num_records,
            "interactions": made.num_interactions,
            "experiences": made.num_experiences,
            "digest": made.digest,
            "comparison": None if compared is None else asdict(compared),
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    typer.echo(
        f"{made.num_records} records, {made.num_interactions} interactions, "
        f"{made.num_experiences} experiences"
    )
    typer.echo(f"digest {made.digest}")
    if compared is None:
        return
    left_out = ", ".join(f"{count} {why}" for why, count in sorted(compared.left_out.items()))
    typer.echo(f"compared {compared.num_compared} interactions; left out: {left_out or 'none'}")
    for difference in compared.differences[:_MAX_DIFFERENCES]:
        typer.echo(f"differs: {difference}")
    if not compared.differences:
        typer.echo("the database holds the same")
    else:
        typer.echo(
            f"{len(compared.differences)} interactions differ; of those compared the digest is "
            f"{compared.live_digest} in the database and {compared.digest} in the replay"
        )


def _print(found: "list[PartitionLag]") -> None:
    from rich.console import Console
    from rich.table import Table

    names = ("topic", "partition", "first", "last", "records", "committed", "lag", "lag (s)")
    table = Table(*names, box=None)
    for one in found:
        last = one.end_offset - 1 if one.num_records else None
        lag_s = None if one.lag_s is None else f"{one.lag_s:.1f}"
        cells = (one.first_offset, last, one.num_records, one.committed, one.lag_records, lag_s)
        table.add_row(
            one.topic,
            str(one.partition),
            *("-" if cell is None else str(cell) for cell in cells),
        )
    Console().print(table)


@contextmanager
def _log(ctx: typer.Context) -> Iterator[tuple["EventLog", "Settings"]]:
    settings = load_settings(ctx)
    from tidemill.eventlog.opening import open_log

    log = open_log(settings.shared)
    try:
        yield log, settings
    finally:
        log.close()
