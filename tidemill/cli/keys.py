"""`tidemill keys create|list|revoke|audit`: who may call the APIs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database

if TYPE_CHECKING:
    from tidemill.storage.database import Database

keys_app = typer.Typer(help="API keys.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(keys_app, name="keys")


@keys_app.command("create")
def create(
    ctx: typer.Context,
    scope: Annotated[list[str], typer.Option(help="May be given several times.")],
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    tenant: Annotated[str | None, typer.Option(help="Instead of the settings' tenant.")] = None,
) -> None:
    """Make a key and print it; it cannot be shown again."""
    from tidemill.storage.keys import create_key

    with _database(ctx) as (database, own_tenant), database.transaction() as session:
        _, text = create_key(
            session,
            tenant=own_tenant if tenant is None else tenant,
            scopes=scope,
            label=label,
            now=datetime.now(UTC),
        )
    typer.echo(text)


@keys_app.command("list")
def list_keys(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the keys, without their secrets."""
    from tidemill.storage.keys import fetch_keys

    with _database(ctx) as (database, _), database.reading() as session:
        rows = [
            {
                "id": row.public_id,
                "tenant": row.tenant,
                "scopes": list(row.scopes),
                "label": row.label,
                "created_at": row.created_at.isoformat(),
                "revoked_at": None if row.revoked_at is None else row.revoked_at.isoformat(),
            }
            for row in fetch_keys(session)
        ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("id", "tenant", "scopes", "label", "created", "revoked")
    for row in rows:
        cells = row | {"scopes": ", ".join(row["scopes"] or ())}
        table.add_row(*(str(cell or "") for cell in cells.values()))
    Console().print(table)


@keys_app.command("revoke")
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(help="The id that `keys list` shows.")],
) -> None:
    """Revoke a key for good; exit 1 when there is no such key in use."""
    from tidemill.storage.keys import revoke_key

    with _database(ctx) as (database, _), database.transaction() as session:
        is_revoked = revoke_key(session, key_id, now=datetime.now(UTC))
    if not is_revoked:
        typer.echo(f"no key {key_id} in use; see `tidemill keys list`", err=True)
        raise typer.Exit(1)
    typer.echo(f"{key_id} is revoked")


@keys_app.command("audit")
def audit(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Option(help="Only of this id.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tell who made and revoked keys, and when, oldest first."""
    from tidemill.storage.keys import fetch_key_events

    with _database(ctx) as (database, _), database.reading() as session:
        rows = [
            {
                "at": row.at.isoformat(),
                "action": row.action,
                "id": row.public_id,
                "tenant": row.tenant,
                "scopes": list(row.scopes),
                "label": row.label,
                "actor": row.actor,
            }
            for row in fetch_key_events(session, public_id=key)
        ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    _print_table(rows)


def _print_table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("at", "action", "id", "tenant", "scopes", "label", "by")
    for row in rows:
        cells = row | {"scopes": ", ".join(row["scopes"])}
        table.add_row(*map(str, cells.values()))
    Console().print(table)


@contextmanager
def _database(ctx: typer.Context) -> Iterator[tuple["Database", str]]:
    settings = load_settings(ctx)
    with opened_database(settings.shared) as database:
        yield database, settings.shared.tenant
