import asyncio
import threading

import pytest

from ingest.api_errors import ProblemError
from ingest.callers import Callers
from tidemill.errors import StorageError
from tidemill.storage.keys import ApiKey, Scope

WRITER = ApiKey("w", "acme", frozenset({Scope.FEEDBACK_WRITE}))


class Keys:
    """Two keys, and a clock."""

    def __init__(self) -> None:
        self.known = {"tdm_w": WRITER}
        self.num_queries = 0
        self.is_down = False
        self.seconds = 0.0
        self.callers = Callers(self.find, fresh_s=5, clock=lambda: self.seconds)

    def find(self, text: str) -> ApiKey | None:
        self.num_queries += 1
        if self.is_down:
            raise StorageError("down")
        return self.known.get(text)

    def ask(self, header: str | None, scope: Scope = Scope.FEEDBACK_WRITE) -> ApiKey | int:
        try:
            return asyncio.run(self.callers.require(header, scope))
        except ProblemError as problem:
            return problem.status


@pytest.mark.parametrize("header", [None, "", "tdm_w", "Basic tdm_w", "Bearer", "Bearer tdm_x"])
def test_without_a_valid_key_it_is_401(header: str | None) -> None:
    assert Keys().ask(header) == 401


def test_what_is_too_long_for_a_key_is_neither_asked_for_nor_remembered() -> None:
    keys = Keys()
    assert keys.ask("Bearer tdm_" + "x" * 125) == 401
    keys.is_down = True
    assert keys.ask("Bearer tdm_" + "x" * 125) == 401
    assert keys.num_queries == 0
    assert keys.ask("Bearer tdm_" + "x" * 124) == 503


def test_a_key_works_within_its_scopes() -> None:
    keys = Keys()
    assert keys.ask("Bearer tdm_w") == WRITER
    assert keys.ask("bearer  tdm_w") == WRITER
    assert keys.ask("Bearer tdm_w", Scope.READ) == 403


def test_an_answer_is_fresh_for_a_while() -> None:
    keys = Keys()
    keys.ask("Bearer tdm_w")
    keys.known.clear()
    assert keys.ask("Bearer tdm_w") == WRITER
    keys.seconds = 5.1
    assert keys.ask("Bearer tdm_w") == 401
    assert keys.num_queries == 2


def test_a_good_key_outlives_a_database_that_is_down() -> None:
    keys = Keys()
    keys.ask("Bearer tdm_w")
    keys.is_down = True
    keys.seconds = 60
    assert keys.ask("Bearer tdm_w") == WRITER
    assert keys.ask("Bearer tdm_other") == 503
    keys.seconds = 700
    assert keys.ask("Bearer tdm_w") == 503


def test_without_keys_everybody_is_the_one_tenant() -> None:
    callers = Callers(lambda _: None, open_to="default")
    caller = asyncio.run(callers.require(None, Scope.READ))
    assert (caller.tenant, caller.allows(Scope.READ)) == ("default", True)


def test_guessing_does_not_fill_the_memory() -> None:
    callers = Callers(lambda _: None, fresh_s=1000)

    async def guess() -> None:
        for number in range(10_050):
            with pytest.raises(ProblemError):
                await callers.require(f"Bearer {number}", Scope.READ)

    asyncio.run(guess())
    assert len(callers._memory) <= 10_000


def test_rejections_are_counted_by_reason() -> None:
    keys = Keys()
    for header in (None, "Basic x", "Bearer tdm_x", "Bearer tdm_x", "Bearer tdm_w"):
        keys.ask(header, Scope.READ)
    keys.ask("Bearer tdm_w")
    assert keys.callers.num_rejected == {"no_key": 2, "unknown_key": 2, "missing_scope": 1}


def test_a_database_that_hangs_is_asked_again_only_after_a_while() -> None:
    keys = Keys()
    keys.ask("Bearer tdm_w")
    gate = threading.Event()

    def hang(text: str) -> ApiKey | None:
        keys.num_queries += 1
        gate.wait(10)
        return keys.known.get(text)

    async def ask() -> list[ApiKey]:
        keys.callers = Callers(keys.find, timeout_s=0.02, clock=lambda: keys.seconds)
        found = [await keys.callers.require("Bearer tdm_w", Scope.FEEDBACK_WRITE)]
        keys.callers._memory._find = hang
        keys.seconds += 6
        for _ in range(3):
            found.append(await keys.callers.require("Bearer tdm_w", Scope.FEEDBACK_WRITE))
        with pytest.raises(ProblemError) as caught:
            await keys.callers.require("Bearer tdm_other", Scope.FEEDBACK_WRITE)
        assert caught.value.status == 503
        gate.set()
        return found

    assert asyncio.run(ask()) == [WRITER] * 4
    assert keys.num_queries == 4
