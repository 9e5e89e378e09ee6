"""The revisions make exactly the declared tables, and can be undone, on both databases."""

import threading

import pytest
from sqlalchemy import inspect

from tidemill.errors import ConfigurationError
from tidemill.storage import schema
from tidemill.storage.database import Database
from tidemill.storage.tables import metadata


def test_revisions_make_the_declared_tables(empty: Database) -> None:
    assert schema.upgrade(empty).is_current
    assert schema.find_differences(empty) is None
    assert set(metadata.tables) <= set(inspect(empty.engine).get_table_names())


def test_a_missing_column_is_a_difference(empty: Database) -> None:
    schema.upgrade(empty)
    with empty.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE traffic DROP COLUMN salt")
    differences = schema.find_differences(empty)
    assert differences is not None
    assert "salt" in differences


def test_down_and_up_again_gives_the_same_tables(empty: Database) -> None:
    schema.upgrade(empty)
    schema.downgrade(empty, "base")
    assert inspect(empty.engine).get_table_names() == ["alembic_version"]
    assert schema.upgrade(empty).is_current
    assert schema.find_differences(empty) is None


def test_each_revision_can_be_undone_by_itself(empty: Database) -> None:
    head = schema.upgrade(empty).wanted
    for _ in range(int(head)):
        schema.downgrade(empty, "-1")
        current = schema.fetch_state(empty).current
        schema.upgrade(empty, "+1")
        schema.downgrade(empty, "-1")
        assert schema.fetch_state(empty).current == current
    assert schema.fetch_state(empty).current is None


def test_a_part_refuses_tables_that_are_not_current(empty: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"schema none at all.*tidemill db upgrade"):
        schema.require_current_schema(empty)
    schema.upgrade(empty, "0001")
    with pytest.raises(ConfigurationError, match="schema 0001"):
        schema.require_current_schema(empty)
    schema.upgrade(empty)
    schema.require_current_schema(empty)


def test_two_that_migrate_at_once_both_succeed(empty: Database) -> None:
    states: list[schema.SchemaState] = []

    def migrate() -> None:
        own = Database(empty.url.render_as_string(hide_password=False))
        states.append(schema.upgrade(own))
        own.close()

    threads = [threading.Thread(target=migrate) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [state.is_current for state in states] == [True, True]


def test_upgrading_twice_changes_nothing(empty: Database) -> None:
    assert schema.upgrade(empty) == schema.upgrade(empty)
