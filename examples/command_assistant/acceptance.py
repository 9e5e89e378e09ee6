"""The proof: the share of answers that are right by the true taste of users, without noise."""

import asyncio
import random

from examples.command_assistant.client import Product
from examples.command_assistant.tasks import draw_tasks
from examples.command_assistant.users import User
from tidemill.environments.base import Split

NUM_REQUESTS = 360
"""At least 300; each kind of request equally often."""


async def measure_acceptance(
    product: Product, users: list[User], *, version: str, model: str = "tide", seed: int
) -> float:
    """Ask held-out requests of one pinned version, at the behaviour temperature.

    Raises:
        openai.NotFoundError: the version serves no more.
        openai.OpenAIError: a request got no answer.
        RuntimeError: another version answered.
    """
    tasks = draw_tasks(Split.HELD_OUT, seed=seed, count=NUM_REQUESTS)
    rng = random.Random(f"acceptance:{seed}")
    people = [rng.choice(users) for _ in tasks]
    gate = asyncio.Semaphore(16)

    async def is_liked(index: int) -> bool:
        async with gate:
            answer = await product.ask(
                tasks[index],
                subject=people[index].name,
                model=f"{model}@{version}",
                consent="no",
            )
        if answer.policy_version != version:
            raise RuntimeError(f"{answer.policy_version} answered instead of {version}")
        return people[index].taste.accepts(tasks[index], answer.text)

    liked = await asyncio.gather(*(is_liked(index) for index in range(len(tasks))))
    return sum(liked) / len(liked)
