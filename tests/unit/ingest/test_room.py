import pytest

from ingest.api_errors import ProblemError
from ingest.room import Room


def test_records_are_bounded_and_none_of_those_refused_is_counted() -> None:
    room = Room(max_records=3, max_bytes=10)
    room.add_records(2)
    with pytest.raises(ProblemError, match="2 records are on their way") as caught:
        room.add_records(2)
    assert (caught.value.status, caught.value.headers) == (429, {"retry-after": "1"})
    room.add_records(1)
    assert room.num_records == 3


def test_bytes_are_bounded_but_what_comes_alone_always_has_room() -> None:
    room = Room(max_records=3, max_bytes=10)
    room.add_bytes(8, beside=0)
    room.add_bytes(8, beside=8)
    assert room.num_bytes == 16
    with pytest.raises(ProblemError, match="16 bytes are on their way") as caught:
        room.add_bytes(1, beside=0)
    assert caught.value.status == 429
    with pytest.raises(ProblemError):
        room.add_bytes(1, beside=15)
    assert room.num_bytes == 16
