import asyncio
from pathlib import Path

import pytest

from examples.command_assistant import demo_start
from examples.command_assistant.demo_service import DemoError
from examples.command_assistant.demo_start import ALONE, MAX_BACKFILLS, make_first_champion
from examples.command_assistant.demo_view import Board
from examples.command_assistant.demo_watch import Sight
from tests.unit.examples.command_assistant.sights import sight_of
from tidemill.contracts.lifecycle import Move


class CannedInstallation:
    """Service and releases: backfill run N publishes vN, which the gate judges at the second look.

    Args:
        passes: which run's version is good enough; None = none.
    """

    logs = Path("logs")

    def __init__(self, passes: int | None) -> None:
        self.passes = passes
        self.runs: list[tuple[str, ...]] = []
        self.is_up = True
        self._num_looks = 0
        self._moves: list[tuple[str, Move]] = []

    async def call(self, *arguments: str, num_threads: int) -> str:
        assert num_threads == ALONE
        self.runs.append(arguments)
        self._num_looks = 0
        return f"step 1: ...\npublished v{len(self.runs)}\n"

    def check(self) -> None:
        if not self.is_up:
            raise DemoError("gone")

    def look(self) -> Sight:
        self._num_looks += 1
        number = len(self.runs)
        if self._num_looks == 2:
            self._moves.append((f"v{number}", self._verdict(number)))
        return sight_of(*self._moves, candidate=f"v{number}")

    def _verdict(self, number: int) -> Move:
        return Move.PROMOTE if number == self.passes else Move.REJECT


def start(installation: CannedInstallation) -> tuple[str, Board]:
    board = Board("", [])
    said = asyncio.run(
        make_first_champion(installation, installation, board, steps=26)  # type: ignore[arg-type]
    )
    return said, board


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_start, "LOOK_EVERY_S", 0.0)


def test_a_version_that_passes_ends_simulated_learning() -> None:
    installation = CannedInstallation(passes=1)
    said, board = start(installation)
    assert said == "published v1"
    assert installation.runs == [("backfill", "--steps", "26")]
    assert board.news == []


def test_a_rejected_version_is_followed_by_a_longer_run() -> None:
    installation = CannedInstallation(passes=2)
    said, board = start(installation)
    assert said == "published v2"
    assert installation.runs == [("backfill", "--steps", "26"), ("backfill", "--steps", "52")]
    assert "26 steps" in board.news[0]


def test_without_any_good_version_the_demo_says_where_to_look() -> None:
    installation = CannedInstallation(passes=None)
    with pytest.raises(DemoError, match=r"no version passed .* after 3 runs .*gate\.log"):
        start(installation)
    assert len(installation.runs) == MAX_BACKFILLS


def test_a_service_that_ended_is_not_waited_for() -> None:
    installation = CannedInstallation(passes=1)
    installation.is_up = False
    with pytest.raises(DemoError, match="gone"):
        start(installation)
