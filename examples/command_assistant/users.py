"""Simulated users: hidden tastes, noisy votes, much silence; they know Tidemill only by HTTP."""

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import openai

from examples.command_assistant.client import Answer, Product
from examples.command_assistant.tally import Tally
from examples.command_assistant.tasks import draw_task
from examples.command_assistant.taste import Taste, draw_taste
from tidemill.client import Feedback
from tidemill.environments.base import Split, Task

METRIC = "accepted"
MALICIOUS = "mallory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How users behave; shares in [0, 1]."""

    answering: float = 0.49
    """How many answers get any vote: most users stay silent."""
    rejects_right: float = 0.10
    """Noise: how many right answers are turned down."""
    accepts_wrong: float = 0.05
    """Noise: how many wrong answers are taken."""
    late: float = 0.03
    """How many votes come after the window."""
    late_s: float = 8.0
    repeats: float = 0.05
    """How many votes are sent twice under one id."""
    changes: float = 0.02
    """How many users vote again under a new id; the last vote counts."""
    arriving_s: float = 1.0
    """Everybody who asks has begun to after this long."""
    think_s: float = 0.6
    """Longest time before a vote."""


@dataclass(frozen=True, slots=True)
class User:
    """One person."""

    name: str
    taste: Taste


def draw_users(count: int, *, seed: int) -> list[User]:
    """Draw people with their tastes; equal seeds give equal people."""
    rng = random.Random(f"users:{seed}")
    return [User(f"user-{index:05d}", draw_taste(rng)) for index in range(count)]


def noisy_vote(is_liked: bool, habits: Habits, rng: random.Random) -> bool:
    """Return what a user says, given what the user thinks."""
    draw = rng.random()
    return draw >= habits.rejects_right if is_liked else draw < habits.accepts_wrong


class Crowd:
    """All users of the product, a fixed number of requests in flight."""

    def __init__(
        self, product: Product, users: list[User], tally: Tally, *, habits: Habits, seed: int
    ) -> None:
        self._product = product
        self._users = users
        self._tally = tally
        self._habits = habits
        self._random = random.Random(f"crowd:{seed}")
        self._turn = 0
        self._votes: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event, *, in_flight: int) -> None:
        """Ask and vote until told to stop, then wait for the votes under way."""
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(self._asks(stop))
            group.create_task(self._does_harm(stop))
        for vote in self._votes:
            vote.cancel()
        await asyncio.gather(*self._votes, return_exceptions=True)

    async def _asks(self, stop: asyncio.Event) -> None:
        # People don't come all at once: answers of equal length would then end all at once.
        await asyncio.sleep(self._random.uniform(0.0, self._habits.arriving_s))
        while not stop.is_set():
            user = self._next_user()
            task = draw_task(Split.TRAIN, self._random)
            answer = await self._answer(task, user.name)
            if answer is None:
                await asyncio.sleep(0.2)
                continue
            is_liked = user.taste.accepts(task, answer.text)
            self._tally.answered(answer.policy_version, is_liked=is_liked)
            if self._random.random() < self._habits.answering:
                self._later(self._vote(user, answer, is_liked=is_liked))

    def _next_user(self) -> User:
        """Everybody in turn, in an order that is drawn anew each time round."""
        if self._turn % len(self._users) == 0:
            self._random.shuffle(self._users)
        self._turn += 1
        return self._users[self._turn % len(self._users)]

    async def _answer(self, task: Task, subject: str) -> Answer | None:
        try:
            return await self._product.ask(task, subject=subject)
        except openai.OpenAIError as error:
            self._tally.failed(f"{type(error).__name__}: {error}")
            return None

    def _later(self, vote: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(vote)
        self._votes.add(task)
        task.add_done_callback(self._votes.discard)

    async def _vote(self, user: User, answer: Answer, *, is_liked: bool) -> None:
        habits, rng = self._habits, self._random
        is_late = rng.random() < habits.late
        await asyncio.sleep(habits.late_s if is_late else rng.uniform(0.05, habits.think_s))
        says = noisy_vote(is_liked, habits, rng)
        body = self._feedback(answer, user.name, value=says)
        self._tally.voted(is_accepted=says)
        self._tally.told(await self._product.tell(body))
        if rng.random() < habits.repeats:
            self._tally.told(await self._product.tell(body))
        if rng.random() < habits.changes:
            again = self._feedback(answer, user.name, value=noisy_vote(is_liked, habits, rng))
            self._tally.told(await self._product.tell(again))

    async def _does_harm(self, stop: asyncio.Event) -> None:
        """One user floods: false votes on each own answer, and bytes that are no feedback."""
        while not stop.is_set():
            answer = await self._answer(draw_task(Split.TRAIN, self._random), MALICIOUS)
            if answer is not None:
                self._tally.answered(answer.policy_version, is_liked=False)
                for _ in range(3):
                    body = self._feedback(answer, MALICIOUS, value=False)
                    self._tally.told(await self._product.tell(body))
            self._tally.told(await self._product.tell_garbage(self._random.randbytes(40)))
            await asyncio.sleep(0.5)

    def _feedback(self, answer: Answer, rater: str, *, value: bool) -> Feedback:
        return Feedback(
            feedback_id=str(UUID(int=self._random.getrandbits(128))),
            interaction_id=answer.interaction_id,
            metric=METRIC,
            value=value,
            rater=rater,
        )
