import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.factories import NOW
from tidemill.errors import ConfigurationError, StorageError
from tidemill.storage.database import Database
from tidemill.storage.tables import ApiKeyRow


def key(public_id: str) -> ApiKeyRow:
    return ApiKeyRow(
        public_id=public_id, secret_hash="x", tenant="t", scopes=[], label="", created_at=NOW
    )


def test_an_unknown_database_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="mysql"):
        Database("mysql://localhost/x")


@pytest.mark.parametrize("url", ["nope", "", "postgresql://u:hidden@host:port/rows"])
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        Database(url)
    assert "hidden" not in str(caught.value)


def test_a_failed_transaction_leaves_nothing(any_database: Database) -> None:
    with pytest.raises(StorageError, match="rolled back"), any_database.transaction() as session:
        session.add(key("a"))
        session.flush()
        session.execute(text("SELECT * FROM no_such_table"))
    with any_database.reading() as session:
        assert session.get(ApiKeyRow, "a") is None


def test_an_error_of_the_caller_leaves_nothing_either(any_database: Database) -> None:
    with pytest.raises(KeyError), any_database.transaction() as session:
        session.add(key("a"))
        session.flush()
        raise KeyError("mine")
    with any_database.reading() as session:
        assert session.get(ApiKeyRow, "a") is None


def test_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'two.db'}")
    ApiKeyRow.metadata.create_all(database.engine)
    with database.transaction() as session:
        session.add(key("n"))

    def add_ten() -> None:
        for _ in range(10):
            with database.transaction() as session:
                row = session.get_one(ApiKeyRow, "n")
                row.label += "x"

    threads = [threading.Thread(target=add_ten) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as session:
        assert session.get_one(ApiKeyRow, "n").label == "x" * 40
    database.close()


def test_sqlite_commits_are_synced(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'sync.db'}")
    with database.reading() as session:
        assert session.execute(text("PRAGMA synchronous")).scalar() == 2
        assert session.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    database.close()


def test_a_new_file_that_another_prepares_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    # Who holds this lock on a file without WAL makes the switch to it fail at once.
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE t (x)")
        timer = threading.Timer(0.3, other.execute, ("COMMIT",))
        timer.start()
        database = Database(f"sqlite:///{path}")
        with database.reading() as session:
            assert session.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
            assert session.execute(text("SELECT count(*) FROM t")).scalar_one() == 0
        database.close()
        timer.join()


@pytest.mark.integration
def test_a_transaction_that_stands_still_is_ended_by_the_database(
    postgres_database: Database,
) -> None:
    with postgres_database.reading() as session:
        limit = session.scalar(text("SHOW idle_in_transaction_session_timeout"))
    assert limit == "30s"
