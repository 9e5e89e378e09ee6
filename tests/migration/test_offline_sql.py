"""The printed SQL, applied by any client, makes what the online upgrade makes."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import inspect
from typer.testing import CliRunner, Result

from tidemill.cli.main import app
from tidemill.errors import ConfigurationError
from tidemill.storage import schema
from tidemill.storage.database import Database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Database, Database]]:
    """Two databases without tables."""
    if request.param == "sqlite":
        urls = [f"sqlite:///{tmp_path / name}.db" for name in ("online", "offline")]
        drop: list[str] = []
    else:
        server = request.getfixturevalue("postgres_server")
        urls = drop = [server.create_database() for _ in range(2)]
    online, offline = map(Database, urls)
    yield online, offline
    online.close()
    offline.close()
    for url in drop:
        server.drop_database(url)


def upgrade(database: Database, tmp_path: Path, *arguments: str) -> Result:
    url = database.url.set(drivername=database.url.get_backend_name())
    path = tmp_path / "tidemill.toml"
    path.write_text(f'[database]\nurl = "{url.render_as_string(hide_password=False)}"\n')
    return CliRunner().invoke(app, ["--settings", str(path), "db", "upgrade", *arguments])


def apply(database: Database, script: str) -> None:
    if database.is_sqlite:
        connection = sqlite3.connect(str(database.url.database))
        connection.executescript(script)
        connection.close()
        return
    url = database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(script.encode())


def describe(database: Database) -> dict[str, Any]:
    found = inspect(database.engine)
    tables = {}
    for table in sorted(found.get_table_names()):
        parts: list[Any] = [
            [column | {"type": repr(column["type"])} for column in found.get_columns(table)],
            found.get_pk_constraint(table),
            found.get_foreign_keys(table),
            sorted(found.get_unique_constraints(table), key=str),
            sorted(map(_index, found.get_indexes(table)), key=str),
        ]
        tables[table] = parts
    return tables


def _index(index: Any) -> dict[str, Any]:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return {**index, "dialect_options": options}


@pytest.mark.parametrize("since", [None, "0001", "0005"])
def test_the_printed_sql_makes_the_same_tables(
    pair: tuple[Database, Database], tmp_path: Path, since: str | None
) -> None:
    online, offline = pair
    schema.upgrade(online)
    arguments = ["--sql"]
    if since is not None:
        schema.upgrade(offline, since)
        arguments += ["--from", since]
    printed = upgrade(offline, tmp_path, *arguments)
    assert printed.exit_code == 0
    apply(offline, printed.stdout)
    schema.require_current_schema(offline)
    assert schema.find_differences(offline) is None
    assert describe(offline) == describe(online)


def test_it_is_one_transaction_and_takes_the_lock_of_postgresql(tmp_path: Path) -> None:
    nowhere = Database("postgresql://nobody@192.0.2.1:1/nothing")
    lines = upgrade(nowhere, tmp_path, "--sql").stdout.split()
    assert lines[:3] == ["BEGIN;", "SELECT", f"pg_advisory_xact_lock({schema._ADVISORY_LOCK});"]
    assert lines[-1] == "COMMIT;"
    assert lines.count("BEGIN;") == lines.count("COMMIT;") == 1


def test_nothing_is_made_and_wrong_options_are_refused(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'none.db'}")
    assert upgrade(database, tmp_path, "--sql").stdout.startswith("BEGIN;")
    assert not (tmp_path / "none.db").exists()
    refused = upgrade(database, tmp_path, "--sql", "--from", "9999")
    assert isinstance(refused.exception, ConfigurationError)
    assert "9999" in str(refused.exception)
    assert upgrade(database, tmp_path, "--from", "0001").exit_code == 2
