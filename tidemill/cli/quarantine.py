"""`tidemill quarantine list|add|remove`: whose feedback is kept without effect."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database
from tidemill.cli.printing import printable
from tidemill.cli.words import storable

if TYPE_CHECKING:
    from tidemill.settings import SharedSettings
    from tidemill.storage.database import Database
    from tidemill.storage.quarantine import Stay

_group = typer.Typer(
    help="Raters, subjects and tenants whose feedback is kept and counted without effect.",
    no_args_is_help=True,
)

Reason = Annotated[str, typer.Option(help="Kept for those who ask later.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="quarantine")


@_group.command("list")
def list_stays(
    ctx: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Also what has ended.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell who is in quarantine, why, since when, by whom, and how much feedback that holds."""
    from tidemill.storage.quarantine import fetch_quarantine

    with _database(ctx) as (database, _), database.reading() as session:
        rows = [_facts(stay) for stay in fetch_quarantine(session, is_lasting=not every)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "tenant", "kind", "who", "feedback", "reason", "added", "by", "removed")
    for row in rows:
        names = ("id", "tenant", "kind", "who", "num_feedback", "reason", "added_at", "added_by")
        cells = [printable(str(row[name])) for name in names]
        table.add_row(*cells, str(row["removed_at"] or ""))
    Console().print(table)


@_group.command("add")
def add(  # noqa: PLR0913  typer reads the options from the parameters
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(help="rater, subject or tenant.")],
    reason: Reason,
    who: Annotated[
        str | None, typer.Argument(help="The product's own id; none of a tenant.")
    ] = None,
    is_hash: Annotated[
        bool, typer.Option("--hashed", help="WHO is the keyed hash that rows hold.")
    ] = False,
    tenant: Annotated[str | None, typer.Option(help="Instead of the settings' tenant.")] = None,
) -> None:
    """Put a rater, a subject or a tenant into quarantine; exit 1 when it is there already."""
    from tidemill.storage.operators import current_operator
    from tidemill.storage.quarantine import add_to_quarantine

    reason = storable(reason, "--reason")
    with _database(ctx) as (database, shared):
        whose = shared.tenant if tenant is None else _tenant(tenant)
        meant = _kind(kind)
        name = _name(shared, whose, who, is_tenant=meant == "tenant", is_hash=is_hash)
        with database.transaction() as session:
            number = add_to_quarantine(
                session,
                tenant=whose,
                kind=meant,
                who=name,
                reason=reason,
                actor=current_operator(),
                now=datetime.now(UTC),
            )
    if number is None:
        typer.echo(f"{kind} {name} is in quarantine already", err=True)
        raise typer.Exit(1)
    typer.echo(f"{number}: {kind} {name} is in quarantine")


@_group.command("remove")
def remove(
    ctx: typer.Context,
    number: Annotated[
        int, typer.Argument(metavar="ID", help="As `list` shows it.", min=1, max=2**31 - 1)
    ],
    reason: Reason,
) -> None:
    """End a stay; what was dropped stays dropped. Exit 1 when there is none of this number."""
    from tidemill.storage.operators import current_operator
    from tidemill.storage.quarantine import remove_from_quarantine

    reason = storable(reason, "--reason")
    with _database(ctx) as (database, _), database.transaction() as session:
        is_ended = remove_from_quarantine(
            session, number, reason=reason, actor=current_operator(), now=datetime.now(UTC)
        )
    if not is_ended:
        typer.echo(f"no stay {number} lasts; see `tidemill quarantine list`", err=True)
        raise typer.Exit(1)
    typer.echo(f"{number} has ended")


def _tenant(name: str) -> str:
    from tidemill.tenants import check_tenant

    try:
        return check_tenant(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--tenant") from error


def _kind(text: str) -> Any:
    from tidemill.storage.quarantine import QuarantineKind

    try:
        return QuarantineKind(text)
    except ValueError as error:
        known = ", ".join(QuarantineKind)
        raise typer.BadParameter(f"{text!r} is none of: {known}", param_hint="KIND") from error


def _name(
    shared: "SharedSettings", tenant: str, who: str | None, *, is_tenant: bool, is_hash: bool
) -> str:
    from tidemill.subjects import SubjectHasher, is_subject_hash, load_or_create_secret

    if is_tenant:
        if who is not None:
            raise typer.BadParameter("name the tenant with --tenant", param_hint="WHO")
        return tenant
    if not who:
        raise typer.BadParameter("say who, by the id that the product sends", param_hint="WHO")
    if is_hash:
        if not is_subject_hash(who):
            # It would be in quarantine, and nothing would ever be of it.
            raise typer.BadParameter(
                f"{who!r} is no hash, which is 32 hexadecimal characters in lower case; leave "
                "--hashed out for the product's own id",
                param_hint="WHO",
            )
        return who
    storable(who, "WHO")
    return SubjectHasher(load_or_create_secret(shared)).subject(tenant, who)


def _facts(stay: "Stay") -> dict[str, Any]:
    row = stay.row
    return {
        "id": row.id,
        "tenant": row.tenant,
        "kind": row.kind,
        "who": row.who,
        "num_feedback": stay.num_feedback,
        "reason": row.reason,
        "added_at": row.added_at.isoformat(),
        "added_by": row.added_by,
        "removed_at": None if row.removed_at is None else row.removed_at.isoformat(),
        "removed_by": row.removed_by,
        "removed_reason": row.removed_reason,
    }


@contextmanager
def _database(ctx: typer.Context) -> Iterator[tuple["Database", "SharedSettings"]]:
    shared = load_settings(ctx).shared
    with opened_database(shared) as database:
        yield database, shared
