from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, insert, select

from tidemill.errors import StorageError
from tidemill.storage.database import Database
from tidemill.storage.types import ExactJson, PackedFloats, PackedIds, UtcDateTime

METADATA = MetaData()
THINGS = Table(
    "things",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("at", UtcDateTime),
    Column("ids", PackedIds),
    Column("floats", PackedFloats),
    Column("value", ExactJson),
)


def stored(database: Database, **values: object) -> object:
    METADATA.create_all(database.engine)
    with database.transaction() as session:
        session.execute(insert(THINGS).values(id=1, **values))
    with database.reading() as session:
        return session.execute(select(THINGS)).one()


def test_a_time_comes_back_in_utc(any_database: Database) -> None:
    moment = datetime(2026, 12, 1, 14, 0, 0, 123456, tzinfo=timezone(timedelta(hours=2)))
    row = stored(any_database, at=moment)
    assert row.at == moment  # type: ignore[attr-defined]
    assert row.at.tzinfo is UTC  # type: ignore[attr-defined]


def test_a_time_without_zone_is_refused(any_database: Database) -> None:
    with pytest.raises(StorageError, match="naive time"):
        stored(any_database, at=datetime(2026, 12, 1))


def test_numbers_come_back_bit_for_bit(any_database: Database) -> None:
    ids = (0, 1, -1, 2**31 - 1)
    floats = (-0.1, -1e-300, 0.0, -123.456789012345)
    row = stored(any_database, ids=ids, floats=floats)
    assert row.ids == ids  # type: ignore[attr-defined]
    assert row.floats == floats  # type: ignore[attr-defined]


def test_nothing_stays_nothing(any_database: Database) -> None:
    row = stored(any_database, at=None, ids=None, floats=())
    assert row.at is None  # type: ignore[attr-defined]
    assert row.ids is None  # type: ignore[attr-defined]
    assert row.floats == ()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "value",
    # Numbers whose text SQLite reads as their neighbours.
    [2.378774848667913, 2.38683204926268, 0.1, 1e-300, True, False, "1.50", {"kept": 0.1}, [0.1]],
)
def test_a_json_value_comes_back_bit_for_bit(any_database: Database, value: object) -> None:
    row = stored(any_database, value=value)
    assert row.value == value  # type: ignore[attr-defined]
    assert type(row.value) is type(value)  # type: ignore[attr-defined]
