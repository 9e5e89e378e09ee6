import asyncio
from dataclasses import replace

import pytest

from examples.command_assistant.demo_service import DemoError
from examples.command_assistant.demo_settings import SMOL, TINY
from examples.command_assistant.demo_tide import ROLL_BACK_S, Drills
from examples.command_assistant.demo_view import Board
from examples.command_assistant.demo_watch import Sight
from tests.unit.examples.command_assistant.sights import sight_of
from tidemill.contracts.lifecycle import Move

LONG = 100.0


class CannedService:
    """Publishes a drill of the next number at each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.says = "published v{number}-000000000000 from v1"

    async def call(self, *arguments: str) -> str:
        self.calls.append(arguments)
        return self.says.format(number=len(self.calls))


def walk(drills: Drills, *steps: tuple[Sight, float]) -> None:
    async def run() -> None:
        for sight, remaining_s in steps:
            drills.advance(sight, remaining_s=remaining_s)
            for _ in range(5):
                await asyncio.sleep(0)

    asyncio.run(run())


def new_drills(service: CannedService, variant=TINY) -> Drills:
    return Drills(service, Board("", []), variant)  # type: ignore[arg-type]


PROMOTED = [(f"v9{number}-000000000000", Move.PROMOTE) for number in range(3)]
REJECTED = [("v1-000000000000", Move.REJECT), ("v2-000000000000", Move.REJECT)]


def test_each_bad_version_waits_for_its_time() -> None:
    service = CannedService()
    drills = new_drills(service)
    walk(drills, (sight_of(), LONG), (sight_of(), LONG))
    assert service.calls == [("drill", "offline")]
    walk(drills, (sight_of(PROMOTED[0]), LONG), (sight_of(PROMOTED[0]), LONG))
    assert service.calls[1:] == [("drill", "canary")]
    walk(drills, (sight_of(*PROMOTED), LONG))
    assert len(service.calls) == 2, "the canary drill is not judged yet"
    walk(drills, (sight_of(*PROMOTED[:2], *REJECTED), LONG))
    assert len(service.calls) == 2, "a promotion is missing, and there is time"
    walk(drills, (sight_of(*PROMOTED, *REJECTED), LONG))
    assert service.calls[2] == ("drill", "canary")
    assert service.calls[3][:4] == ("releases", "promote", "v3-000000000000", "--force")


def test_near_the_end_the_last_one_waits_for_no_promotion() -> None:
    service = CannedService()
    drills = new_drills(service)
    drills.offline, drills.canary = (version for version, _ in REJECTED)
    walk(drills, (sight_of(*REJECTED), drills.made_in_s + ROLL_BACK_S + 1))
    assert drills.forced is None
    walk(drills, (sight_of(*REJECTED), drills.made_in_s + ROLL_BACK_S - 1))
    assert drills.forced is not None


def test_a_slow_machine_makes_the_last_one_earlier() -> None:
    service = CannedService()
    drills = new_drills(service)
    drills.offline, drills.canary = (version for version, _ in REJECTED)
    drills.made_in_s = 60.0
    walk(drills, (sight_of(*REJECTED), LONG - 10))
    assert drills.forced is not None
    assert drills.made_in_s < 60.0, "measured at each one"


def test_the_tide_does_not_end_on_a_bad_champion() -> None:
    drills = new_drills(CannedService())
    forced = ("v3-000000000000", Move.PROMOTE)
    assert drills.grace_s(sight_of(forced)) == 0.0
    drills.forced = forced[0]
    assert drills.grace_s(sight_of(forced)) == ROLL_BACK_S
    assert drills.grace_s(sight_of((forced[0], Move.ROLL_BACK))) == 0.0


def test_the_story_is_over_when_all_met_their_end() -> None:
    drills = new_drills(CannedService())
    drills.offline, drills.canary = (version for version, _ in REJECTED)
    assert not drills.is_over(sight_of(*REJECTED))
    drills.forced = "v3-000000000000"
    assert not drills.is_over(sight_of(*REJECTED))
    assert drills.is_over(sight_of(*REJECTED, ("v3-000000000000", Move.ROLL_BACK)))


def test_a_variant_without_drills_makes_none() -> None:
    service = CannedService()
    drills = new_drills(service, replace(SMOL, has_drills=False))
    walk(drills, (sight_of(*PROMOTED), 0.0))
    assert service.calls == []
    assert drills.is_over(sight_of())


def test_a_drill_that_names_no_version_stops_the_demo() -> None:
    service = CannedService()
    service.says = "nothing came of it"
    drills = new_drills(service)
    with pytest.raises(DemoError, match="nothing came of it"):
        walk(drills, (sight_of(), LONG), (sight_of(), LONG))
