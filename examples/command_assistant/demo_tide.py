"""The middle of the demo: users talk, versions come and go, and three bad ones are let loose."""

import asyncio
import re
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from examples.command_assistant.demo_service import DemoError, Service
from examples.command_assistant.demo_settings import Variant
from examples.command_assistant.demo_view import Board
from examples.command_assistant.demo_watch import Sight, Watch
from examples.command_assistant.users import Crowd
from tidemill.contracts.lifecycle import Move
from tidemill.storage.replicas import SwapFigures

_PUBLISHED = re.compile(r"published (v\d+-[0-9a-f]{12})")
NUM_SPANS = 4
"""What counts for an early end; the newest span is not over yet and does not count."""
ROLL_BACK_S = 35.0
"""What the watch needs at most to see that a forced version is bad; its making comes on top."""
FORCED_REASON = "demo: a bad version forced into service, to see it rolled back"


@dataclass(slots=True)
class Drills:
    """Bad versions on purpose; each at its time, one after the other."""

    service: Service
    board: Board
    variant: Variant
    offline: str | None = None
    canary: str | None = None
    forced: str | None = None
    made_in_s: float = 20.0
    """How long the last bad version took to make; at first, what a laptop needs."""
    _running: asyncio.Task[object] | None = field(default=None, init=False)

    def advance(self, sight: Sight, *, remaining_s: float) -> None:
        """Start the next drill when its time has come.

        Args:
            sight: how the releases stand.
            remaining_s: how long the tide goes on at most.

        Raises:
            DemoError: a drill failed.
        """
        if not self.variant.has_drills:
            return
        if self._running is not None:
            if not self._running.done():
                return
            self._running.result()
            self._running = None
        if self.offline is None:
            self._run(self._publish("offline", "offline"))
        elif self.canary is None and sight.promotions:
            self._run(self._publish("canary", "canary"))
        elif self.forced is None and self._is_judged(sight, self.canary):
            # A forced version ends the canary that runs: best when all promotions are there.
            are_promoted = len(sight.promotions) >= self.variant.min_promoted
            if are_promoted or remaining_s < self.made_in_s + ROLL_BACK_S:
                self._run(self._force())

    def is_over(self, sight: Sight) -> bool:
        """Tell whether all bad versions met their end."""
        done = (self.offline, self.canary, self.forced)
        are_judged = all(self._is_judged(sight, version) for version in done)
        return are_judged or not self.variant.has_drills

    def grace_s(self, sight: Sight) -> float:
        """Return how much longer the tide may go on, so that it does not end on a bad champion."""
        is_forced = self.forced is not None and sight.champion == self.forced
        return ROLL_BACK_S if is_forced else 0.0

    async def stop(self) -> None:
        """Give up what still runs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    @staticmethod
    def _is_judged(sight: Sight, version: str | None) -> bool:
        ends = {Move.REJECT, Move.ROLL_BACK, Move.SUPERSEDE}
        return version is not None and any(
            move.version == version and move.move in ends for move in sight.moves
        )

    def _run(self, drill: Coroutine[Any, Any, object]) -> None:
        self._running = asyncio.create_task(drill)

    async def _publish(self, kind: str, name: str) -> str:
        self.board.say(f"drill: the learner makes a bad version ({kind})")
        began_at = time.monotonic()
        text = await self.service.call("drill", kind)
        self.made_in_s = time.monotonic() - began_at
        found = _PUBLISHED.search(text)
        if found is None:
            raise DemoError(f"`tidemill drill {kind}` named no version: {text.strip()[-300:]}")
        setattr(self, name, found[1])
        return found[1]

    async def _force(self) -> None:
        version = await self._publish("canary", "forced")
        await self.service.call(
            "releases", "promote", version, "--force", "--reason", FORCED_REASON
        )
        self.board.say(f"{version} is made champion by force")


@dataclass(slots=True)
class Tide:
    """Users, learner, gate and drills at once, until the story is told or the time is over."""

    service: Service
    board: Board
    watch: Watch
    variant: Variant
    swaps: SwapFigures | None = field(default=None, init=False)
    """Of the time while users talked: a swap without traffic says nothing."""
    _num_moves: int = field(default=0, init=False)

    async def run(self, crowd: Crowd, *, longest_s: float) -> Sight:
        """Let it happen and return the last sight of the releases.

        Args:
            crowd: the users.
            longest_s: when it ends, whatever has happened by then.

        Raises:
            DemoError: a part of Tidemill gave up.
        """
        stop = asyncio.Event()
        drills = Drills(self.service, self.board, self.variant)
        talking = asyncio.create_task(crowd.run(stop, in_flight=self.variant.in_flight))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + longest_s
        sight = await self.look()
        try:
            while loop.time() < deadline + drills.grace_s(sight):
                await asyncio.sleep(1.0)
                self.service.check()
                if talking.done():
                    talking.result()
                sight = await self.look()
                self.swaps = sight.swaps
                drills.advance(sight, remaining_s=deadline - loop.time())
                if self._is_told(sight, drills):
                    break
        finally:
            await drills.stop()
            stop.set()
            await talking
        return await self.look()

    async def look(self) -> Sight:
        """Read the releases and tell what moved."""
        sight = await asyncio.to_thread(self.watch.look)
        for move in sight.moves[self._num_moves :]:
            self.board.say(f"{move.version} {move.move.value.replace('_', ' ')}: {move.reason}")
        self._num_moves = len(sight.moves)
        self.board.sight = sight
        return sight

    def _is_told(self, sight: Sight, drills: Drills) -> bool:
        if not drills.is_over(sight):
            return False
        liked = [share for _, share in self.board.tally.curve("liked")][-1 - NUM_SPANS : -1]
        is_high = len(liked) == NUM_SPANS and sum(liked) / NUM_SPANS >= self.variant.high
        return len(sight.promotions) >= self.variant.min_promoted and is_high
