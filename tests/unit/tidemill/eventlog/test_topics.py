import pytest

from tidemill.errors import EventLogError
from tidemill.eventlog.topics import (
    MAX_RECORD_BYTES,
    check_record,
    check_topic,
    next_lease_moves,
    partition_of,
    share_of,
)


@pytest.mark.parametrize("name", ["a", "tidemill.dead-letters", "x_1.Y"])
def test_a_topic_may_be_a_file_name_and_a_kafka_topic(name: str) -> None:
    assert check_topic(name) == name


@pytest.mark.parametrize("name", ["", "_groups", ".x", "a/b", "a b", "ä", "a" * 201, "a\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(EventLogError, match="not a topic"):
        check_topic(name)


def test_a_record_has_a_largest_size() -> None:
    check_record("t", "k", bytes(MAX_RECORD_BYTES))
    with pytest.raises(EventLogError, match="at most 1048576"):
        check_record("t", "k", bytes(MAX_RECORD_BYTES + 1))


def test_a_key_is_text() -> None:
    with pytest.raises(EventLogError, match=r"no Unicode text: '\\ud800'"):
        check_record("t", "\ud800", b"")


def test_a_key_keeps_its_partition_for_ever() -> None:
    # Stored data depends on these numbers: CRC-32 of "a" is 0xE8B7BE43.
    assert partition_of("a", 4) == 0xE8B7BE43 % 4 == 3
    assert partition_of("schlüssel", 256) == 246
    assert {partition_of(str(number), 8) for number in range(200)} == set(range(8))


@pytest.mark.parametrize(
    ("members", "shares"),
    [
        (["a"], [{0, 1, 2, 3}]),
        (["b", "a"], [{1, 3}, {0, 2}]),
        (["a", "b", "c"], [{0, 3}, {1}, {2}]),
        (["a", "b", "c", "d", "e"], [{0}, {1}, {2}, {3}, set()]),
    ],
)
def test_shares_cover_every_partition_once(members: list[str], shares: list[set[int]]) -> None:
    assert [set(share_of(member, members, 4)) for member in members] == shares


def test_a_stranger_has_no_share() -> None:
    assert share_of("x", ["a", "b"], 4) == frozenset()


def test_a_member_takes_only_what_nobody_alive_holds() -> None:
    owners = {0: "me", 1: "me", 2: "other", 3: "dead"}
    given_up, taken = next_lease_moves(
        owners, frozenset({0, 2, 3, 4}), member="me", living=frozenset({"me", "other"})
    )
    assert given_up == {1}
    assert taken == {3, 4}
