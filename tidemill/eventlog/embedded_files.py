"""Where the topics of the embedded log lie, and how one begins: whole, or not at all."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from tidemill.durable import sync_path
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.topics import check_topic

_SCHEMA = """
CREATE TABLE partitions (
    partition INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    next INTEGER NOT NULL,
    last_appended_us INTEGER NOT NULL
);
CREATE TABLE records (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    appended_us INTEGER NOT NULL
);
"""


def topic_path(folder: Path, topic: str) -> Path:
    """Return the file of a topic."""
    return folder / f"{check_topic(topic)}.db"


def create_topic(folder: Path, topic: str, num_partitions: int) -> None:
    """Create a topic unless it is there; of several that try at once, one succeeds.

    Raises:
        EventLogUnavailableError: the folder cannot be written.
    """
    path = topic_path(folder, topic)
    if path.exists():
        return
    aside = path.with_name(f"{path.name}.{uuid4().hex}.new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(aside, isolation_level=None)) as connection:
            # Before the first table: a file cannot learn later to give its free pages back.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_SCHEMA)
            connection.executemany(
                "INSERT INTO partitions VALUES (?, 0, 0, 0)",
                [(number,) for number in range(num_partitions)],
            )
        sync_path(aside)
        try:
            os.link(aside, path)
        except FileExistsError:
            return
        sync_path(folder)
    except (OSError, sqlite3.Error) as error:
        raise EventLogUnavailableError(
            f"cannot create topic {topic} in {folder}: {error}"
        ) from error
    finally:
        for leftover in folder.glob(f"{aside.name}*"):
            leftover.unlink(missing_ok=True)
