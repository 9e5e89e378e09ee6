"""Many rows in one statement, past the layers that would cost more than the insert itself.

PostgreSQL gets a column as one array (`unnest`), SQLite its driver's `executemany`. Values pass
through the same column types as everywhere else.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import Column, Table
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import Session

from tidemill.storage.tables.base import Row

_POSTGRESQL: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]

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
    values = [
        [row[name] if bind is None else bind(row[name]) for row in rows]
        for name, bind in zip(names, binds, strict=True)
    ]
    if connection.dialect.name == "sqlite":
        statement = _sqlite_insert(table, names)
        connection.exec_driver_sql(statement, list(zip(*values, strict=True)))
    else:
        connection.exec_driver_sql(_postgresql_insert(table, names), tuple(values))


@lru_cache(maxsize=64)
def _binds(table: Table, names: tuple[str, ...], dialect: Dialect) -> tuple[_Bind | None, ...]:
    return tuple(_bind(table.c[name], dialect) for name in names)


def _bind(column: Column[Any], dialect: Dialect) -> _Bind | None:
    return column.type.dialect_impl(dialect).bind_processor(dialect)


@lru_cache(maxsize=64)
def _sqlite_insert(table: Table, names: tuple[str, ...]) -> str:
    columns = ", ".join(_quoted(names))
    marks = ", ".join("?" for _ in names)
    return f"INSERT INTO {table.name} ({columns}) VALUES ({marks})"  # noqa: S608  names are ours


@lru_cache(maxsize=64)
def _postgresql_insert(table: Table, names: tuple[str, ...]) -> str:
    columns = ", ".join(_quoted(names))
    arrays = ", ".join(f"%s::{_array_type(table.c[name])}[]" for name in names)
    into = f"INSERT INTO {table.name} ({columns})"
    return f"{into} SELECT * FROM unnest({arrays})"  # noqa: S608  names are ours


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _array_type(column: Column[Any]) -> str:
    return str(column.type.compile(dialect=_POSTGRESQL))
