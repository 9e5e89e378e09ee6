"""Many hands at the registry at once: processes that promote, publish and roll back."""

import multiprocessing
from typing import Any

import pytest

from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import Move, PolicyStatus
from tidemill.errors import TidemillError
from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.storage.database import Database

WHY = Why(reason="race", actor="test")


def publish(registry: PolicyRegistry) -> str:
    number = registry.next_number()
    digest = f"{number:012x}" + "0" * 52
    version = str(PolicyVersion.of(number, digest))
    registry.register(PolicyRecord(version=version, digest=digest, base_digest="b" * 64))
    return version


def act(url: str, deed: str, version: str, barrier: Any, results: Any) -> None:
    """Do one thing in a process of its own, at the same moment as the others."""
    database = Database(url)
    registry = PolicyRegistry(database, model="tide", tenant="default")
    barrier.wait(60)
    try:
        if deed == "promote":
            registry.promote(version, why=WHY)
        elif deed == "roll_back":
            registry.roll_back(why=WHY, expected=version)
        else:
            for _ in range(5):
                publish(registry)
        results.put("done")
    except TidemillError as error:
        results.put(f"{type(error).__name__}: {error}")
    database.close()


def race(database: Database, deeds: list[tuple[str, str]]) -> list[str]:
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(deeds)), context.Queue()
    url = database.url.render_as_string(hide_password=False)
    processes = [
        context.Process(target=act, args=(url, deed, version, barrier, results))
        for deed, version in deeds
    ]
    for process in processes:
        process.start()
    outcomes = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return outcomes


@pytest.fixture
def registry(any_database: Database) -> PolicyRegistry:
    return PolicyRegistry(any_database, model="tide", tenant="default")


def test_two_promotions_at_once_leave_one_champion(registry: PolicyRegistry) -> None:
    first, second, third = (publish(registry) for _ in range(3))
    registry.promote(first, why=WHY)
    assert race(registry.database, [("promote", second), ("promote", third)]) == ["done"] * 2
    (champion,) = registry.list(PolicyStatus.CHAMPION)
    assert registry.traffic().champion == champion.version
    assert champion.version in (second, third)
    assert len(registry.list(PolicyStatus.RETIRED)) == 2
    loser = third if champion.version == second else second
    assert registry.predecessor(champion.version) == loser


def test_a_gate_and_a_person_roll_back_only_once(registry: PolicyRegistry) -> None:
    versions = [publish(registry) for _ in range(3)]
    for version in versions:
        registry.promote(version, why=WHY)
    outcomes = race(registry.database, [("roll_back", versions[2])] * 2)
    assert sorted(outcomes)[1] == "done"
    assert "champion by now" in sorted(outcomes)[0]
    assert registry.traffic().champion == versions[1]
    moves = [move.move for move in registry.transitions()]
    assert moves.count(Move.ROLL_BACK) == 1


def test_publishers_never_share_a_number(registry: PolicyRegistry) -> None:
    assert race(registry.database, [("publish", ""), ("publish", "")]) == ["done"] * 2
    assert [record.number for record in registry.list()] == list(range(1, 11))
