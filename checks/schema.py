"""`alembic check`: the revisions make exactly the tables that the code declares."""

import tempfile
from pathlib import Path

from tidemill.storage import schema
from tidemill.storage.database import Database


def find_problems() -> list[str]:
    """Return how a database made by the revisions differs from the declared tables."""
    with tempfile.TemporaryDirectory() as folder:
        database = Database(f"sqlite:///{Path(folder) / 'check.db'}")
        schema.upgrade(database)
        differences = schema.find_differences(database)
        database.close()
    return [f"migrations: {differences}"] if differences else []
