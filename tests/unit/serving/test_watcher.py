from collections.abc import Iterator

import pytest

from serving.lineup import Lineup
from serving.scheduler import EngineFactory, Scheduler
from serving.watcher import SwapRecord, Watcher
from tests.unit.serving.test_scheduler import SilentEngine
from tidemill.errors import ProbeFailedError, SnapshotCorruptError, StorageError
from tidemill.registry import Traffic

V1, V2, V3 = (f"v{number}-0123456789ab" for number in (1, 2, 3))


class World:
    """A registry, a store and a book of swaps, each of which can fail."""

    def __init__(self) -> None:
        self.now = Traffic()
        self.is_away = False
        self.bad: dict[str, Exception] = {}
        self.factories: dict[str, EngineFactory] = {}
        self.num_loads = 0
        self.num_in_flight = 0
        self.swaps: list[SwapRecord] = []
        self.is_book_shut = False
        self.scheduler = Scheduler(max_in_flight=8)
        self.watcher = Watcher(
            registry=self,
            load_version=self.load,
            scheduler=self.scheduler,
            replica=self,
            refused_retry_s=0.0,
        )

    def traffic(self) -> Traffic:
        if self.is_away:
            raise StorageError("away")
        return self.now

    def load(self, version: str) -> EngineFactory:
        self.num_loads += 1
        if version in self.bad:
            raise self.bad[version]
        return self.factories.get(version, SilentEngine)

    def record_swap(self, record: SwapRecord) -> None:
        if self.is_book_shut:
            raise StorageError("away")
        self.swaps.append(record)

    def tick(self, traffic: Traffic | None = None) -> Lineup:
        self.now = self.now if traffic is None else traffic
        self.watcher.tick()
        return self.watcher.lineup

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [(swap.version, swap.role, swap.outcome) for swap in self.swaps]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.scheduler.start()
    yield world
    world.scheduler.stop(timeout_s=5)


def test_nobody_serves_before_the_first_champion(world: World) -> None:
    assert "registry was not read" in world.watcher.missing
    assert world.tick() == Lineup()
    assert "offline suite" in world.watcher.missing


def test_the_first_champion_is_a_start_and_the_next_a_flip(world: World) -> None:
    world.tick(Traffic(V1))
    assert world.watcher.missing == ""
    world.tick(Traffic(V2))

    assert world.outcomes() == [(V1, "champion", "started"), (V2, "champion", "flipped")]
    assert world.watcher.num_swaps == 1
    assert world.scheduler.accepting == (V2,)


def test_a_canary_joins_grows_and_is_promoted_without_loading_again(world: World) -> None:
    world.tick(Traffic(V1))
    world.tick(Traffic(V1, V2, 0.1, "s"))
    lineup = world.tick(Traffic(V1, V2, 0.5, "s"))
    assert (lineup.challenger, lineup.challenger_share) == (V2, 0.5)
    world.tick(Traffic(V2))

    assert world.num_loads == 2
    assert world.outcomes()[1:] == [(V2, "challenger", "flipped"), (V2, "champion", "flipped")]


def test_the_same_traffic_again_does_nothing(world: World) -> None:
    for _ in range(3):
        world.tick(Traffic(V1, V2, 0.1, "s"))
    assert world.num_loads == 2
    assert len(world.swaps) == 2


def test_a_rejected_challenger_leaves(world: World) -> None:
    world.tick(Traffic(V1, V2, 0.1, "s"))
    assert world.tick(Traffic(V1)) == Lineup(champion=V1)
    assert world.scheduler.accepting == (V1,)


@pytest.mark.parametrize(
    "error",
    [
        SnapshotCorruptError("digest"),
        ProbeFailedError("probe"),
        PermissionError(13, "denied"),
        RuntimeError("out of memory"),
        MemoryError(),
        KeyError("a manifest of tomorrow"),
    ],
)
def test_a_version_that_does_not_hold_is_refused_once_on_record(
    world: World, error: Exception
) -> None:
    world.bad[V2] = error
    world.tick(Traffic(V1))
    for _ in range(3):
        assert world.tick(Traffic(V2)) == Lineup(champion=V1)

    assert world.outcomes()[1:] == [(V2, "candidate", "refused")]
    assert str(error) in world.swaps[-1].detail
    assert world.watcher.missing == ""
    del world.bad[V2]
    assert world.tick() == Lineup(champion=V2)


def test_a_reason_that_is_not_ours_is_named_by_its_class(world: World) -> None:
    world.bad[V1] = MemoryError()
    world.tick(Traffic(V1))
    assert world.swaps[-1].detail == "MemoryError"


def test_an_engine_that_cannot_be_made_refuses_its_version(world: World) -> None:
    def make_engine() -> SilentEngine:
        raise RuntimeError("no memory for the cache")

    world.tick(Traffic(V1))
    world.factories[V2] = make_engine
    assert world.tick(Traffic(V2)) == Lineup(champion=V1)
    assert world.tick(Traffic(V3)) == Lineup(champion=V3)
    assert world.outcomes()[1:] == [(V2, "candidate", "refused"), (V3, "champion", "flipped")]


def test_a_bad_challenger_changes_nothing_for_the_champion(world: World) -> None:
    world.bad[V2] = SnapshotCorruptError("digest")
    assert world.tick(Traffic(V1, V2, 0.5, "s")) == Lineup(champion=V1)


def test_a_bad_first_champion_is_explained(world: World) -> None:
    world.bad[V1] = SnapshotCorruptError("the digest differs")
    world.tick(Traffic(V1))
    assert "the digest differs" in world.watcher.missing


def test_while_the_registry_is_away_the_lineup_stays(world: World) -> None:
    world.is_away = True
    world.tick()
    assert "cannot be read" in world.watcher.missing
    world.is_away = False
    world.tick(Traffic(V1))
    world.is_away = True
    assert world.tick() == Lineup(champion=V1)
    assert world.watcher.missing == ""


def test_a_swap_is_recorded_later_when_the_database_is_away(world: World) -> None:
    world.is_book_shut = True
    world.tick(Traffic(V1))
    assert world.swaps == []
    world.is_book_shut = False
    world.tick()
    assert world.outcomes() == [(V1, "champion", "started")]


def test_a_refused_version_is_not_tried_at_every_look() -> None:
    world = World()
    world.watcher = Watcher(
        registry=world,
        load_version=world.load,
        scheduler=world.scheduler,
        replica=world,
        refused_retry_s=60,
    )
    world.bad[V1] = SnapshotCorruptError("digest")
    for _ in range(3):
        world.tick(Traffic(V1))
    assert world.num_loads == 1
