"""Alembic's environment: binds the tables of `tidemill.storage` to the database of the settings.

A connection that the caller hands over (`tidemill.storage.schema`) is used as it is; otherwise the
command line was `alembic ...`, and the URL is `TIDEMILL_DATABASE__URL` or a SQLite file in memory.
"""

import os
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection, TypeDecorator

from tidemill.storage.database import Database
from tidemill.storage.tables import metadata


def _render_item(kind: str, item: Any, _autogen: AutogenContext) -> str | Literal[False]:
    # A revision is history: it names plain types, never ours, which may change later.
    if kind == "type" and isinstance(item, TypeDecorator):
        return f"sa.{item.impl_instance!r}"
    return False


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        compare_type=True,
        render_item=_render_item,
        # SQLite cannot alter most things in place; a batch copies the table.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


def _print() -> None:
    """Write the statements to Alembic's output, for a database that nobody connects to."""
    context.configure(
        dialect_name=context.config.attributes["dialect_name"],
        target_metadata=metadata,
        literal_binds=True,
        # One transaction, as when they are run; Alembic would leave it out for SQLite.
        transactional_ddl=True,
    )
    with context.begin_transaction():
        for statement in context.config.attributes["first"]:
            context.execute(statement)
        context.run_migrations()


def _run() -> None:
    if context.is_offline_mode():
        _print()
        return
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    database = Database(os.environ.get("TIDEMILL_DATABASE__URL", "sqlite://"))
    with database.engine.connect() as own:
        _migrate(own)
        own.commit()
    database.close()


_run()
