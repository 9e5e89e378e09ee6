from contextlib import suppress
from typing import Any

import pytest

from tests.factories import NOW
from tidemill.errors import FencedError
from tidemill.storage.database import Database
from tidemill.storage.offsets import (
    Advance,
    advance_offsets,
    fetch_committed,
    fetch_offsets,
    fetch_position,
    fetch_progress,
    write_acknowledged,
)
from tidemill.storage.tables import AcknowledgedCountRow


def advance(database: Database, **over: Any) -> None:
    defaults: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "expected": None,
        "first_offset": 5,
        "next_offset": 8,
        "num_records": 3,
        "appended_until": NOW,
    }
    with database.transaction() as session:
        advance_offsets(session, "g", [Advance(**(defaults | over))])


def advance_other(database: Database, **over: Any) -> None:
    defaults: dict[str, Any] = {
        "topic": "t",
        "expected": None,
        "first_offset": 0,
        "num_records": 1,
        "appended_until": NOW,
    }
    with database.transaction() as session:
        advance_offsets(session, "other", [Advance(**(defaults | over))])


def position(database: Database, partition: int = 0) -> int | None:
    with database.reading() as session:
        return fetch_position(session, "g", "t", partition)


def test_a_group_begins_and_goes_on(any_database: Database) -> None:
    assert position(any_database) is None
    advance(any_database)
    assert position(any_database) == 8
    # Offsets may have gaps: 9 records fill 12 places.
    advance(any_database, expected=8, first_offset=9, next_offset=20, num_records=9)
    with any_database.reading() as session:
        row = fetch_offsets(session, "g", topic="t", partitions=[0, 1])[0]
    assert (row.first_offset, row.next_offset, row.num_records) == (5, 20, 12)
    assert row.appended_until == NOW


@pytest.mark.parametrize("expected", [None, 7, 9])
def test_who_expects_another_place_is_fenced(any_database: Database, expected: int | None) -> None:
    advance(any_database)
    with pytest.raises(FencedError, match=rf"t\[0\] at {expected}"):
        advance(any_database, expected=expected)
    assert position(any_database) == 8


def test_who_expects_a_place_where_none_is_known_is_fenced(any_database: Database) -> None:
    with pytest.raises(FencedError):
        advance(any_database, expected=3)
    assert position(any_database) is None


def test_partitions_move_apart(database: Database) -> None:
    advance(database)
    advance(database, partition=1, next_offset=6)
    assert (position(database), position(database, 1)) == (8, 6)


@pytest.mark.parametrize(("expected", "is_fenced"), [(6, False), (5, True)])
def test_partitions_move_together_or_not_at_all(
    any_database: Database, expected: int, is_fenced: bool
) -> None:
    advance(any_database)
    advance(any_database, partition=1, next_offset=6)
    numbers: dict[str, Any] = {"topic": "t", "first_offset": 8, "num_records": 1}
    steps = [
        Advance(partition=0, expected=8, next_offset=9, appended_until=NOW, **numbers),
        Advance(partition=1, expected=expected, next_offset=7, appended_until=NOW, **numbers),
    ]
    with suppress(FencedError), any_database.transaction() as session:
        advance_offsets(session, "g", steps)
    places = (position(any_database), position(any_database, 1))
    assert places == ((8, 6) if is_fenced else (9, 7))


def test_a_process_writes_its_count_over_the_last(database: Database) -> None:
    for number in (1, 5):
        with database.transaction() as session:
            row = AcknowledgedCountRow(
                process_id="p", topic="t", num_acknowledged=number, updated_at=NOW
            )
            write_acknowledged(session, row)
    with database.reading() as session:
        assert session.get_one(AcknowledgedCountRow, ("p", "t")).num_acknowledged == 5


def test_what_every_group_has_stored_is_committed(any_database: Database) -> None:
    advance(any_database)
    advance(any_database, partition=1)
    advance(any_database, topic="u", partition=2)
    # Slower than the group itself, faster, and where the group has not begun.
    for partition, offset in ((0, 3), (1, 20), (3, 9)):
        advance_other(any_database, partition=partition, next_offset=offset)
    with any_database.reading() as session:
        assert fetch_committed(session, "g", topic="t") == {0: 3, 1: 8}
        assert fetch_progress(session, "g") == {("t", 0): 8, ("t", 1): 8, ("u", 2): 8}
