"""The beginning of the demo: simulated learning until the gate lets a first version serve."""

import asyncio

from examples.command_assistant.demo_service import DemoError, Service
from examples.command_assistant.demo_view import Board
from examples.command_assistant.demo_watch import Watch
from tidemill.contracts.lifecycle import Move

ALONE = 2
"""Threads of a command that has the machine to itself: nobody asks anything yet."""
MAX_BACKFILLS = 3
"""Runs of simulated learning, each longer, before there is no hope of a first champion."""
LOOK_EVERY_S = 0.5


async def make_first_champion(service: Service, watch: Watch, board: Board, *, steps: int) -> str:
    """Learn from simulated rollouts until a version serves, and return what the last run said.

    Args:
        service: a running installation with a base.
        watch: its releases.
        board: hears of versions that were not good enough.
        steps: of the first run.

    Raises:
        DemoError: no version passed the offline suite, or a part of Tidemill gave up.
    """
    for attempt in range(1, MAX_BACKFILLS + 1):
        # Each run begins at the base: the same steps would give the same version again.
        number = str(attempt * steps)
        text = await service.call("backfill", "--steps", number, num_threads=ALONE)
        if await _is_accepted(service, watch):
            return text.strip().splitlines()[-1]
        board.say(f"{number} steps of simulated learning do not pass the offline suite")
    raise DemoError(
        f"no version passed the offline suite after {MAX_BACKFILLS} runs of simulated learning; "
        f"see {service.logs / 'gate.log'}"
    )


async def _is_accepted(service: Service, watch: Watch) -> bool:
    """Wait for the gate's verdict on the newest version: True when one serves."""
    while True:
        service.check()
        sight = await asyncio.to_thread(watch.look)
        if sight.champion is not None:
            return True
        newest = sight.records[-1].version
        if any(move.version == newest for move in sight.moved(Move.REJECT)):
            return False
        await asyncio.sleep(LOOK_EVERY_S)
