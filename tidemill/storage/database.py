"""The database: one engine a process, and short transactions.

SQLite runs in WAL mode with `synchronous=FULL`; every writing transaction takes the write lock at
its start, so that two writers wait for each other instead of failing half-way.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import create_engine, event
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session

from tidemill.errors import ConfigurationError, StorageError

# Stages annotate with `Session` and import it from here: SQLAlchemy has one home.
__all__ = ["Database", "Session"]

_BUSY_TIMEOUT_MS = 30_000
_CACHE_KIB = 32_768
"""Of one connection, as far as it is used; SQLite's own 2 MB hold no index of a busy table."""

_CHECKPOINT_PAGES = 4000
"""16 MB of WAL: a batch of interactions fills SQLite's own limit of 4 MB in two transactions."""
_STANDSTILL_MS = 30_000
"""A transaction that asks nothing for this long is rolled back, and its process cut off."""


class Database:
    """An engine and its transactions; safe to share between threads, not between forks."""

    def __init__(self, url: str) -> None:
        """Connect lazily.

        Args:
            url: `sqlite:///path` or `postgresql://...` (psycopg is used).

        Raises:
            ConfigurationError: another database, or no URL at all.
        """
        try:
            parsed = make_url(url)
        except (ArgumentError, ValueError) as error:
            # The text may hold a password, so it is not repeated.
            raise ConfigurationError(
                "the database's URL cannot be read; use sqlite:///... or postgresql://..."
            ) from error
        if parsed.get_backend_name() == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        elif parsed.get_backend_name() != "sqlite":
            raise ConfigurationError(
                f"database.url is {parsed.render_as_string()!r}; use sqlite:///... or postgresql://..."
            )
        self.url: URL = parsed
        self.engine: Engine = _create_engine(parsed)

    @property
    def is_sqlite(self) -> bool:
        """Whether this is the embedded column."""
        return self.engine.dialect.name == "sqlite"

    @property
    def driver_error(self) -> type[Exception]:
        """The root of what the driver itself raises."""
        error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        return error

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Yield a session whose changes are all durable at the end, or all gone.

        Raises:
            StorageError: the database refused; nothing was written.
        """
        with Session(self.engine, expire_on_commit=False) as session:
            try:
                yield session
                session.commit()
            except SQLAlchemyError as error:
                session.rollback()
                raise StorageError(f"the transaction was rolled back: {error}") from error

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session that takes no write lock; it must not write.

        Raises:
            StorageError: the database refused.
        """
        engine = self.engine.execution_options(tidemill_read_only=True)
        with Session(engine, expire_on_commit=False) as session:
            try:
                yield session
            except SQLAlchemyError as error:
                raise StorageError(f"the query failed: {error}") from error

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _create_engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        engine = create_engine(url, pool_pre_ping=True)
        event.listen(engine, "connect", _prepare_postgres)
        return engine
    engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_MS / 1000})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_postgres(connection: Any, _record: Any) -> None:
    with connection.cursor() as cursor:
        # A process that stands still in mid-transaction must not hold its rows against the others.
        cursor.execute(f"SET idle_in_transaction_session_timeout = {_STANDSTILL_MS}")
    connection.commit()


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # The driver must not open transactions by itself: `_begin_sqlite` does.
    connection.isolation_level = None
    cursor = connection.cursor()
    _enter_wal(cursor)
    for pragma in (
        "synchronous=FULL",
        "foreign_keys=ON",
        f"busy_timeout={_BUSY_TIMEOUT_MS}",
        f"cache_size=-{_CACHE_KIB}",
        f"wal_autocheckpoint={_CHECKPOINT_PAGES}",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _enter_wal(cursor: Any) -> None:
    """Switch a file to WAL, for good.

    Of two that switch a new file at once, SQLite refuses one without waiting, whatever the timeout.
    """
    deadline = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _begin_sqlite(connection: Any) -> None:
    read_only = connection.get_execution_options().get("tidemill_read_only", False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")
