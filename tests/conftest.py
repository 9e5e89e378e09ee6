"""Fixtures that every test may use; each gives fresh state."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.storage.database import Database
from tidemill.storage.tables import metadata


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A SQLite file with all tables."""
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    metadata.create_all(database.engine)
    yield database
    database.close()
