from pathlib import Path

import pytest

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.embedded_groups import Membership


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def join(folder: Path, clock: Clock, member: str, group: str = "g") -> Membership:
    return Membership(folder, group=group, member=member, lease_s=5.0, clock=clock)


def test_one_member_has_everything(tmp_path: Path) -> None:
    member = join(tmp_path, Clock(), "a")
    assert member.beat(4) == {0, 1, 2, 3}
    member.leave()


def test_an_owner_gives_up_before_another_takes(tmp_path: Path) -> None:
    clock = Clock()
    old, new = join(tmp_path, clock, "a"), join(tmp_path, clock, "b")
    assert old.beat(4) == {0, 1, 2, 3}
    assert new.beat(4) == frozenset()
    assert old.beat(4) == {0, 2}
    assert new.beat(4) == {1, 3}
    assert old.beat(4) == {0, 2}
    old.leave()
    assert new.beat(4) == {0, 1, 2, 3}
    new.leave()


def test_a_silent_member_loses_its_partitions_after_the_lease(tmp_path: Path) -> None:
    clock = Clock()
    silent, other = join(tmp_path, clock, "a"), join(tmp_path, clock, "b")
    silent.beat(2)
    other.beat(2)
    clock.now += 4.9
    assert other.beat(2) == frozenset()
    clock.now += 0.2
    assert other.beat(2) == {0, 1}
    # It comes back and finds that it holds nothing until the other gives up.
    assert silent.beat(2) == frozenset()
    assert other.beat(2) == {1}
    assert silent.beat(2) == {0}
    silent.leave()
    other.leave()


def test_a_clock_set_back_keeps_no_dead_member(tmp_path: Path) -> None:
    clock = Clock()
    dead, other = join(tmp_path, clock, "a"), join(tmp_path, clock, "b")
    dead.beat(2)
    clock.now -= 500.0
    assert other.beat(2) == {0, 1}
    other.leave()


def test_groups_do_not_see_each_other(tmp_path: Path) -> None:
    clock = Clock()
    one, two = join(tmp_path, clock, "a", "one"), join(tmp_path, clock, "b", "two")
    assert one.beat(2) == two.beat(2) == {0, 1}
    one.leave()
    two.leave()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(EventLogUnavailableError, match="cannot open the groups"):
        join(tmp_path / "missing", Clock(), "a")


def test_a_broken_file_is_said_and_holds_nothing(tmp_path: Path) -> None:
    member = join(tmp_path, Clock(), "a")
    member.beat(2)
    member._connection.execute("DROP TABLE leases")
    with pytest.raises(EventLogUnavailableError, match="no sign of life"):
        member.beat(2)
    # Leaving must not fail: the lease ends by itself.
    member.leave()
