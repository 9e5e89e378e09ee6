"""`tidemill dead-letters list|show|replay|drop`: records that could not be used."""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database
from tidemill.cli.moments import parse_moment
from tidemill.cli.printing import printable
from tidemill.cli.words import storable
from tidemill.contracts.events import TOPICS, DeadLetterReason

if TYPE_CHECKING:
    from ingest.letters import Clerk, Handled
    from tidemill.cli.settings import Settings
    from tidemill.storage.database import Database
    from tidemill.storage.dead_letters import LetterPlace
    from tidemill.storage.tables import DeadLetterRow

_group = typer.Typer(
    help="Records that could not be used: see why, replay what was repaired, drop the rest.",
    no_args_is_help=True,
)

_PARTITION = re.compile("[0-9]{1,9}")
_OFFSET = re.compile("[0-9]{1,18}")
"""As many digits as every database takes."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Reason = Annotated[
    DeadLetterReason | None, typer.Option(help="Only those that died of this.", case_sensitive=True)
]
Since = Annotated[
    str | None, typer.Option(help="Only those appended since: 2h, 7d, or an ISO time.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="The newest so many.")]
Place = Annotated[str, typer.Argument(help="As `list` shows it: topic/partition/offset.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="dead-letters")


@_group.command("list")
def list_letters(  # noqa: PLR0913  typer reads the options from the parameters
    ctx: typer.Context,
    reason: Reason = None,
    since: Since = None,
    limit: Limit = 100,
    any_state: Annotated[bool, typer.Option("--all", help="Also those that are closed.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the open dead letters, oldest first."""
    with _database(ctx) as (database, _):
        rows = _find(database, reason, since, limit, any_state=any_state)
    if as_json:
        typer.echo(json.dumps([_facts(row) for row in rows], indent=2))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("letter", "appended", "reason", "detail", "id", "state", box=None)
    for row in rows:
        moment = f"{row.appended_at:%F %T}"
        cells = (_place_of(row), moment, row.reason, row.detail, row.record_id or "", row.state)
        table.add_row(*(escape(printable(str(cell))) for cell in cells))
    Console().print(table)


@_group.command()
def show(ctx: typer.Context, letter: Place, as_json: AsJson = False) -> None:
    """Show one dead letter whole; exit 1 when there is none."""
    from tidemill.storage.dead_letters import fetch_dead_letter

    place = _parse_place(letter)
    with _database(ctx) as (database, _), database.reading() as session:
        row = fetch_dead_letter(session, place)
    if row is None:
        typer.echo(f"no dead letter {place}; see `tidemill dead-letters list`", err=True)
        raise typer.Exit(1)
    facts = _facts(row)
    if as_json:
        facts["payload_base64"] = base64.b64encode(row.payload).decode()
        typer.echo(json.dumps(facts, indent=2))
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:>14}  {printable(str(value))}")
    typer.echo(f"{'payload':>14}  {len(row.payload)} bytes")
    typer.echo(printable(row.payload))


@_group.command()
def replay(  # noqa: PLR0913  typer reads the options from the parameters
    ctx: typer.Context,
    letters: Annotated[list[str] | None, typer.Argument(help="topic/partition/offset ...")] = None,
    reason: Reason = None,
    since: Since = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Append the records of repaired dead letters to the log again; exit 1 when one is refused."""
    if bool(letters) == (reason is not None):
        raise typer.BadParameter("name either letters or a --reason")
    from tidemill.eventlog.opening import open_log

    with _database(ctx) as (database, settings):
        places = [_parse_place(letter) for letter in letters or ()]
        if not letters:
            rows = _find(database, reason, since, limit, any_state=False)
            places = [_parse_place(_place_of(row)) for row in rows]
        log = open_log(settings.shared)
        try:
            sink = log.sink()
            clerk = _clerk(database, settings)
            _handle(as_json, (clerk.replay(place, sink, now=_now()) for place in places))
            sink.close()
        finally:
            log.close()


@_group.command()
def drop(
    ctx: typer.Context,
    letters: Annotated[list[str], typer.Argument(help="topic/partition/offset ...")],
    reason: Annotated[str, typer.Option(help="Why nothing more is to become of them.")],
    as_json: AsJson = False,
) -> None:
    """Close dead letters for good, with a reason; exit 1 when one is refused."""
    places = [_parse_place(letter) for letter in letters]
    reason = storable(reason, "--reason")
    with _database(ctx) as (database, settings):
        clerk = _clerk(database, settings)
        _handle(as_json, (clerk.drop(place, reason=reason, now=_now()) for place in places))


def _handle(as_json: bool, handling: Iterator["Handled"]) -> None:
    from ingest.letters import Ending

    done: list[Handled] = []
    try:
        for one in handling:
            done.append(one)
            if not as_json:
                typer.echo(f"{one.place}: {one.ending.value}: {printable(one.detail)}")
    finally:
        # Whatever stopped it: what was done before is said.
        if as_json:
            rows = [
                {"letter": str(one.place), "ending": one.ending.value, "detail": one.detail}
                for one in done
            ]
            typer.echo(json.dumps(rows, indent=2))
    if any(one.ending is Ending.REFUSED for one in done):
        raise typer.Exit(1)


def _find(
    database: "Database",
    reason: DeadLetterReason | None,
    since: str | None,
    limit: int | None,
    *,
    any_state: bool,
) -> Sequence["DeadLetterRow"]:
    from tidemill.storage.dead_letters import LetterQuery, LetterState, find_dead_letters

    try:
        moment = None if since is None else parse_moment(since, now=_now())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    wanted = LetterQuery(
        state=None if any_state else LetterState.OPEN,
        reason=None if reason is None else reason.value,
        since=moment,
        limit=limit,
    )
    with database.reading() as session:
        return find_dead_letters(session, wanted)


def _clerk(database: "Database", settings: "Settings") -> "Clerk":
    from ingest.letters import Clerk
    from tidemill.rewards.metrics_file import load_metrics
    from tidemill.storage.operators import current_operator

    return Clerk(
        database=database, metrics=load_metrics(settings.metrics), actor=current_operator()
    )


def _facts(row: "DeadLetterRow") -> dict[str, Any]:
    return {
        "letter": _place_of(row),
        "topic": row.topic,
        "partition": row.partition,
        "offset": row.log_offset,
        "appended_at": row.appended_at.isoformat(),
        "reason": row.reason,
        "detail": row.detail,
        "tenant": row.tenant,
        "record_id": row.record_id,
        "num_bytes": len(row.payload),
        "state": row.state,
        "closed_at": None if row.closed_at is None else row.closed_at.isoformat(),
        "closed_by": row.closed_by,
        "closed_reason": row.closed_reason,
    }


def _place_of(row: "DeadLetterRow") -> str:
    return f"{row.topic}/{row.partition}/{row.log_offset}"


def _parse_place(text: str) -> "LetterPlace":
    from tidemill.storage.dead_letters import LetterPlace

    topic, _, numbers = text.partition("/")
    partition, _, offset = numbers.partition("/")
    if topic not in TOPICS or not (_PARTITION.fullmatch(partition) and _OFFSET.fullmatch(offset)):
        raise typer.BadParameter(f"{text!r} is no letter: topic/partition/offset, as `list` shows")
    return LetterPlace(topic, int(partition), int(offset))


def _now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def _database(ctx: typer.Context) -> Iterator[tuple["Database", "Settings"]]:
    settings = load_settings(ctx)
    with opened_database(settings.shared) as database:
        yield database, settings
