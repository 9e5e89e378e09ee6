import asyncio
from collections.abc import Callable

import pytest

from serving.errors import ApiError
from serving.keyring import KeyRing
from tidemill.errors import StorageError
from tidemill.storage.keys import ApiKey, Scope

GOOD = ApiKey("a", "default", frozenset({Scope.COMPLETIONS}))


class Desk:
    """A database of keys that counts its questions and can be away."""

    def __init__(self) -> None:
        self.key: ApiKey | None = GOOD
        self.is_away = False
        self.num_asked = 0
        self.now = 0.0

    def find(self, _: str) -> ApiKey | None:
        self.num_asked += 1
        if self.is_away:
            raise StorageError("away")
        return self.key

    def ring(self) -> KeyRing:
        return KeyRing(self.find, tenant="default", fresh_s=5, stale_s=60, clock=lambda: self.now)


def let_in(ring: KeyRing, header: str = "Bearer tdm_a") -> None:
    asyncio.run(ring.require({"authorization": header}))


def refused(call: Callable[[], None]) -> int:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.status


def test_what_is_too_long_for_a_key_is_neither_asked_for_nor_remembered() -> None:
    desk = Desk()
    assert refused(lambda: let_in(desk.ring(), "Bearer tdm_" + "x" * 125)) == 401
    assert desk.num_asked == 0
    let_in(desk.ring(), "Bearer tdm_" + "x" * 124)
    assert desk.num_asked == 1


def test_a_good_key_is_looked_up_once_while_it_is_fresh() -> None:
    desk = Desk()
    ring = desk.ring()
    for desk.now in (0, 1, 4.9):
        let_in(ring)
    assert desk.num_asked == 1
    desk.now = 5
    let_in(ring)
    assert desk.num_asked == 2


def test_a_revoked_key_works_no_longer_than_it_is_fresh() -> None:
    desk = Desk()
    ring = desk.ring()
    let_in(ring)
    desk.key, desk.now = None, 6
    assert refused(lambda: let_in(ring)) == 401


@pytest.mark.parametrize("header", ["", "tdm_a", "Basic tdm_a", "Bearer "])
def test_no_key_is_refused_without_a_look_up(header: str) -> None:
    desk = Desk()
    assert refused(lambda: let_in(desk.ring(), header)) == 401
    assert desk.num_asked == 0


@pytest.mark.parametrize(
    "key",
    [
        ApiKey("a", "default", frozenset({Scope.READ})),
        ApiKey("a", "another", frozenset({Scope.COMPLETIONS})),
    ],
)
def test_a_key_for_something_else_is_refused(key: ApiKey) -> None:
    desk = Desk()
    desk.key = key
    assert refused(lambda: let_in(desk.ring())) == 403


def test_while_the_database_is_away_a_known_key_passes_for_a_time() -> None:
    desk = Desk()
    ring = desk.ring()
    let_in(ring)
    desk.is_away, desk.now = True, 59
    let_in(ring)
    desk.now = 61
    assert refused(lambda: let_in(ring)) == 503


def test_while_the_database_is_away_a_stranger_is_asked_to_come_again() -> None:
    desk = Desk()
    desk.is_away = True
    assert refused(lambda: let_in(desk.ring())) == 503


def test_the_memory_is_bounded() -> None:
    desk = Desk()
    ring = desk.ring()
    let_in(ring)
    seen = ring._memory._seen
    seen.update({str(number): seen["tdm_a"] for number in range(20_000)})
    let_in(ring, "Bearer tdm_b")
    assert list(seen) == ["tdm_b"]


def test_a_database_that_is_away_is_asked_again_only_after_a_while() -> None:
    desk = Desk()
    ring = desk.ring()
    let_in(ring)
    desk.is_away = True
    for desk.now in (6, 7, 10.9):
        let_in(ring)
    assert desk.num_asked == 2
    desk.now = 11.1
    let_in(ring)
    assert desk.num_asked == 3
    desk.now = 61
    assert refused(lambda: let_in(ring)) == 503
