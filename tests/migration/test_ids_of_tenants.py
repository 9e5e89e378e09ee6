"""Revision 0012 keeps every row, and lets two tenants use one id."""

from typing import Any

import pytest
from sqlalchemy import JSON, Column, Connection, MetaData, Table, select

from tests.factories import NOW
from tidemill.errors import StorageError
from tidemill.storage import schema
from tidemill.storage.database import Database

TABLES = ("interactions", "experiences", "learner_steps", "experience_uses", "judgements")


@pytest.fixture
def filled(empty: Database) -> Database:
    """A database of revision 0011 with a row in each table that changes."""
    schema.upgrade(empty, "0011")
    with empty.engine.begin() as connection:
        for name in TABLES:
            insert(connection, name)
    return empty


def tables(connection: Connection) -> dict[str, Table]:
    found = MetaData()
    found.reflect(connection, only=TABLES)
    return dict(found.tables)


def insert(connection: Connection, name: str, **over: Any) -> None:
    """Add a row of which every column has a value of its type, the ids all the same."""
    table = tables(connection)[name]
    values = {one.name: _value(one) for one in table.columns}
    if "tenant" in values:
        values["tenant"] = "acme"
    connection.execute(table.insert().values(values | over))


def _value(column: Column[Any]) -> Any:
    if isinstance(column.type, JSON):
        return {"a": 0.5}
    kinds: dict[type, Any] = {int: 1, float: 0.5, bool: True, bytes: b"\x00\xff", str: "x"}
    return kinds.get(column.type.python_type, NOW)


def rows(database: Database) -> dict[str, list[dict[str, Any]]]:
    with database.engine.begin() as connection:
        return {
            name: [dict(row) for row in connection.execute(select(table)).mappings()]
            for name, table in tables(connection).items()
        }


def test_rows_stay_and_get_their_tenant(filled: Database) -> None:
    before = rows(filled)
    assert schema.upgrade(filled).is_current
    assert schema.find_differences(filled) is None
    after = rows(filled)
    for name in ("experience_uses", "judgements"):
        (row,) = before[name]
        row["tenant"] = "acme"
    assert after == before


def test_the_way_back_is_open_until_two_tenants_share_an_id(filled: Database) -> None:
    before = rows(filled)
    schema.upgrade(filled, "0012")
    with filled.engine.begin() as connection:
        insert(connection, "interactions", tenant="globex", log_offset=2)
        insert(connection, "experiences", tenant="globex")
    with pytest.raises(StorageError, match="rolled back"):
        schema.downgrade(filled, "0011")
    assert schema.fetch_state(filled).current == "0012"
    with filled.engine.begin() as connection:
        for name in ("interactions", "experiences"):
            table = tables(connection)[name]
            connection.execute(table.delete().where(table.c.tenant == "globex"))
    schema.downgrade(filled, "0011")
    assert rows(filled) == before


def test_a_use_names_an_experience_of_its_tenant(filled: Database) -> None:
    schema.upgrade(filled, "0012")
    with filled.engine.begin() as connection:
        # As a release before this one writes it.
        insert(connection, "experience_uses", tenant=None, serial=2)
    with pytest.raises(Exception, match=r"(?i)foreign key"), filled.engine.begin() as connection:
        insert(connection, "experience_uses", tenant="globex", serial=3)
