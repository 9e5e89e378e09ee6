"""What the tests of migrations share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.storage.database import Database


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.integration)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'empty.db'}"
    else:
        url = request.getfixturevalue("postgres_url")
    database = Database(url)
    yield database
    database.close()
