"""`tidemill ledger`: states and sums; exit 1 when they don't balance."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tidemill.cli.context import load_settings

if TYPE_CHECKING:
    from tidemill.ledger import Ledger


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ledger")(ledger)


def ledger(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the event log with the rows, each counted apart."""
    settings = load_settings(ctx)
    from tidemill.eventlog.opening import open_log
    from tidemill.ledger import TOPICS_COUNTED, take_ledger
    from tidemill.storage.database import Database
    from tidemill.storage.schema import require_current_schema

    database = Database(settings.shared.database_url)
    log = open_log(settings.shared)
    try:
        require_current_schema(database)
        log.create_topics(TOPICS_COUNTED)
        taken = take_ledger(database, log, group=settings.ingest.consumer_group)
    finally:
        log.close()
        database.close()
    if as_json:
        typer.echo(json.dumps(taken.to_json(), indent=2, sort_keys=True))
    else:
        _print(taken)
    raise typer.Exit(0 if taken.is_balanced else 1)


def _print(taken: "Ledger") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    records = Table("topic", "in log", "processed", "waiting", "rows", "acknowledged")
    for topic, sums in taken.records.items():
        records.add_row(topic, *map(str, sums.values()))
    console.print(records)
    states = Table("", "state", "count")
    for name, counts in (
        ("interactions", taken.interactions),
        ("excluded", taken.excluded),
        ("feedback", taken.feedback | {"duplicate deliveries": taken.num_duplicates}),
        ("dead letters", taken.dead_letters),
        ("dead letters are", taken.letters),
        ("revisions are", taken.revisions),
    ):
        for state, count in counts.items():
            states.add_row(name, state, str(count))
    console.print(states)
    if taken.is_balanced:
        console.print("balanced", style="green")
    for problem in taken.problems:
        console.print(f"does not balance: {problem}", style="red", markup=False)
