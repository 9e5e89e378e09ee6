"""`tidemill db`: the version of the tables."""

from typing import Annotated

import typer

from tidemill.cli.context import load_settings

_group = typer.Typer(help="Tables: bring them to this version, or ask where they stand.")


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="db")


@_group.command()
def upgrade(
    ctx: typer.Context,
    sql: Annotated[
        bool, typer.Option("--sql", help="Print the SQL instead; nothing is connected to.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option("--from", help="With --sql: the revision that the tables have, e.g. 0006."),
    ] = None,
) -> None:
    """Bring the tables to the version of this code; several at once wait for each other."""
    from tidemill.storage import schema
    from tidemill.storage.database import Database

    if since is not None and not sql:
        raise typer.BadParameter("--from goes with --sql; otherwise the database is asked")
    shared = load_settings(ctx).shared
    if sql:
        typer.echo(schema.render_upgrade(Database(shared.database_url), since=since), nl=False)
        return
    shared.data.mkdir(parents=True, exist_ok=True)
    database = Database(shared.database_url)
    before = schema.fetch_state(database)
    after = schema.upgrade(database)
    typer.echo(f"schema {before.current or 'none'} -> {after.current}")
    database.close()


@_group.command()
def check(ctx: typer.Context) -> None:
    """Exit 0 when the tables are those of this code, else 1 with the differences."""
    from tidemill.storage import schema
    from tidemill.storage.database import Database

    database = Database(load_settings(ctx).shared.database_url)
    state = schema.fetch_state(database)
    differences = schema.find_differences(database) if state.is_current else None
    database.close()
    typer.echo(f"schema {state.current or 'none'}, this version needs {state.wanted}")
    if not state.is_current:
        typer.echo("run `tidemill db upgrade`")
        raise typer.Exit(1)
    if differences:
        typer.echo(differences)
        raise typer.Exit(1)
