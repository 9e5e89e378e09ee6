"""Many rows at once, past the layers that would cost more than the insert itself.

PostgreSQL gets them by COPY, SQLite by its driver's `executemany`. Values pass through the same
column types as everywhere else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from tidemill.storage.tables.base import Row

_POSTGRESQL: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

_DRIVER_TYPES = {
    "BIGINT": "int8",
    "BOOLEAN": "bool",
    "FLOAT": "float8",
    "INTEGER": "int4",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
}
"""Where the driver calls a column's type something else."""

_Bind = Callable[[Any], Any]


def insert_rows(session: Session, kind: type[Row], rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows; they name the same columns, and what they leave out gets its server's default.

    Args:
        session: the transaction.
        kind: the table.
        rows: values by the names of columns.
    """
    if not rows:
        return
    connection = session.connection()
    table = cast("Table", kind.__table__)
    names = tuple(rows[0])
    binds = _binds(table, names, connection.dialect)
    columns = [
        [row[name] if bind is None else bind(row[name]) for row in rows]
        for name, bind in zip(names, binds, strict=True)
    ]
    values = zip(*columns, strict=True)
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(_sqlite_insert(table, names), list(values))
    else:
        _copy(connection, table, names, values)


def _copy(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Iterable[tuple[Any, ...]]
) -> None:
    driver: Any = connection.connection.cursor()
    try:
        with driver.copy(_postgresql_copy(table, names)) as copy:
            copy.set_types(_types(table, names))
            for row in rows:
                copy.write_row(row)
    except connection.dialect.loaded_dbapi.Error as error:
        # As SQLAlchemy has it, whose errors our callers know.
        raise DBAPIError(f"COPY {table.name}", None, error) from error
    finally:
        driver.close()


@lru_cache(maxsize=64)
def _binds(table: Table, names: tuple[str, ...], dialect: Dialect) -> tuple[_Bind | None, ...]:
    return tuple(table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names)


@lru_cache(maxsize=64)
def _sqlite_insert(table: Table, names: tuple[str, ...]) -> str:
    marks = ", ".join("?" for _ in names)
    columns = ", ".join(_quoted(names))
    return f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"  # noqa: S608  names are ours


@lru_cache(maxsize=64)
def _postgresql_copy(table: Table, names: tuple[str, ...]) -> str:
    return f"COPY {table.name} ({', '.join(_quoted(names))}) FROM STDIN (FORMAT BINARY)"


@lru_cache(maxsize=64)
def _types(table: Table, names: tuple[str, ...]) -> tuple[str, ...]:
    kinds = (table.c[name].type.compile(dialect=_POSTGRESQL) for name in names)
    return tuple(_DRIVER_TYPES.get(kind, kind.lower()) for kind in kinds)


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]
