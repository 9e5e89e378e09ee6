"""`tidemill ledger`: states and sums; exit 1 when they don't balance."""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database
from tidemill.cli.moments import parse_moment

if TYPE_CHECKING:
    from tidemill.ledger import Ledger
    from tidemill.storage.ledger_groups import GroupBy, StateCount


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ledger")(ledger)


def ledger(
    ctx: typer.Context,
    by: Annotated[
        list[str] | None,
        typer.Option(help="hour or tenant, or both: tell the states by it, too."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="With --by: appended since, e.g. 24h or an ISO time.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the event log with the rows, each counted apart."""
    groups = _groups(by or ())
    moment = _moment(since, groups)
    settings = load_settings(ctx)
    from tidemill.eventlog.opening import open_log
    from tidemill.ledger import TOPICS_COUNTED, take_ledger
    from tidemill.storage.ledger_groups import fetch_state_counts

    counts: list[StateCount] = []
    with (
        opened_database(settings.shared) as database,
        closing(open_log(settings.shared)) as log,
    ):
        log.create_topics(TOPICS_COUNTED)
        taken = take_ledger(database, log, group=settings.ingest.consumer_group)
        if groups:
            with database.reading() as session:
                counts = fetch_state_counts(session, groups, since=moment)
    if as_json:
        told = taken.to_json() | ({"groups": _grouped(counts, groups)} if groups else {})
        typer.echo(json.dumps(told, indent=2, sort_keys=True))
    else:
        _print(taken)
        if groups:
            _print_groups(counts, groups)
    raise typer.Exit(0 if taken.is_balanced else 1)


def _groups(names: Sequence[str]) -> tuple["GroupBy", ...]:
    from tidemill.storage.ledger_groups import GroupBy

    try:
        return tuple(GroupBy(name) for name in dict.fromkeys(names))
    except ValueError as error:
        known = " or ".join(GroupBy)
        raise typer.BadParameter(f"--by: {error}; give {known}") from error


def _moment(since: str | None, groups: Sequence["GroupBy"]) -> datetime | None:
    if since is None:
        return None
    if not groups:
        raise typer.BadParameter("--since goes with --by: the balance counts everything")
    try:
        return parse_moment(since, now=datetime.now(UTC))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _key(one: "StateCount", groups: Sequence["GroupBy"]) -> tuple[tuple[str, str | None], ...]:
    hour = None if one.hour is None else f"{one.hour:%Y-%m-%dT%H:00Z}"
    values = {"hour": hour, "tenant": one.tenant}
    return tuple((group.value, values[group.value]) for group in groups)


def _grouped(counts: Sequence["StateCount"], groups: Sequence["GroupBy"]) -> list[dict[str, Any]]:
    """Return one entry a group, with its states and their sums."""
    entries: dict[tuple[tuple[str, str | None], ...], dict[str, Any]] = {}
    for one in counts:
        key = _key(one, groups)
        entry = entries.setdefault(key, {**dict(key), "sums": {}})
        entry.setdefault(one.kind, {})[one.state] = one.number
        entry["sums"][one.kind] = entry["sums"].get(one.kind, 0) + one.number
    return list(entries.values())


def _print_groups(counts: Sequence["StateCount"], groups: Sequence["GroupBy"]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*(group.value for group in groups), "", "sum", "states")
    for entry in _grouped(counts, groups):
        for kind, total in entry["sums"].items():
            states = ", ".join(f"{number} {state}" for state, number in sorted(entry[kind].items()))
            cells = (entry[group.value] or "unknown" for group in groups)
            table.add_row(*cells, kind, str(total), states)
    Console().print(table)


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
        ("dropped experiences", taken.dropped),
        ("revisions are", taken.revisions),
    ):
        for state, count in counts.items():
            states.add_row(name, state, str(count))
    console.print(states)
    if taken.is_balanced:
        console.print("balanced", style="green")
    for problem in taken.problems:
        console.print(f"does not balance: {problem}", style="red", markup=False)
