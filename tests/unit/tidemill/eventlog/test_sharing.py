from hypothesis import given
from hypothesis import strategies as st

from tidemill.eventlog.sharing import Claim, first_round, owners_of, share_out

MEMBERS = ("a", "b", "c", "d", "e")
members = st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True)
owners = st.dictionaries(st.integers(0, 15), st.sampled_from(MEMBERS))


def shares_of(**shares: set[int]) -> dict[str, frozenset[int]]:
    return {member: frozenset(share) for member, share in shares.items()}


def test_a_first_member_gets_everything() -> None:
    assert share_out({}, ["a"], 4) == shares_of(a={0, 1, 2, 3})


def test_a_second_member_gets_half_and_the_first_keeps_half() -> None:
    held = dict.fromkeys(range(4), "a")
    shares = share_out(held, ["a", "b"], 4)
    assert shares == shares_of(a={0, 1}, b={2, 3})
    # First a gives 2 and 3 up, then b gets them.
    assert first_round(held, shares) == shares_of(a={0, 1}, b=set())
    assert first_round({0: "a", 1: "a"}, shares) == shares


def test_the_others_take_over_what_a_lost_member_had() -> None:
    held = {0: "a", 1: "gone", 2: "b", 3: "gone"}
    assert share_out(held, ["a", "b"], 4) == shares_of(a={0, 1}, b={2, 3})


def test_more_members_than_partitions_leave_some_idle() -> None:
    assert share_out({0: "c"}, ["a", "b", "c"], 2) == shares_of(a={1}, b=set(), c={0})


def test_nobody_and_nothing_is_no_error() -> None:
    assert share_out({}, [], 4) == {}
    assert share_out({}, ["a"], 0) == shares_of(a=set())


def test_a_partition_beyond_the_end_is_nobodys() -> None:
    assert share_out({0: "a", 9: "a"}, ["a", "b"], 2) == shares_of(a={0}, b={1})


def test_of_two_claims_the_later_round_is_true() -> None:
    stale = Claim("a", 3, frozenset({0, 1}))
    fresh = Claim("b", 4, frozenset({1, 2}))
    assert owners_of([fresh, stale]) == owners_of([stale, fresh]) == {0: "a", 1: "b", 2: "b"}


@given(owners, members, st.integers(0, 16))
def test_shares_are_whole_fair_and_move_no_more_than_they_must(
    held: dict[int, str], names: list[str], num_partitions: int
) -> None:
    shares = share_out(held, names, num_partitions)
    given_out = sorted(number for share in shares.values() for number in share)
    assert given_out == list(range(num_partitions))
    sizes = [len(share) for share in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    for name in names:
        before = {n for n, owner in held.items() if owner == name and n < num_partitions}
        # It gives up only what is beyond its share, and gains only when it gives up nothing.
        assert before <= shares[name] or shares[name] <= before


@given(owners, members, st.integers(0, 16))
def test_two_rounds_end_in_the_shares_and_nobody_has_two_owners_on_the_way(
    held: dict[int, str], names: list[str], num_partitions: int
) -> None:
    held = {number: owner for number, owner in held.items() if owner in names}
    first = first_round(held, share_out(held, names, num_partitions))
    for name, share in first.items():
        assert all(held.get(number, name) == name for number in share)
    now = {number: name for name, share in first.items() for number in share}
    second = share_out(now, names, num_partitions)
    assert first_round(now, second) == second
    assert all(first[name] <= second[name] for name in names)
