"""Requests: every combination of a kind, a phrase and slot values belongs to exactly one split."""

import random
import zlib
from collections.abc import Mapping
from typing import Any

from examples.command_assistant.kinds import KINDS, Kind
from examples.command_assistant.tools import TOOL_NAMES, offered_tools
from tidemill.environments.base import Split, Task

HELD_OUT_SHARE = 4
"""One slot combination in four is kept for judging."""


def split_of(kind: Kind, slots: Mapping[str, Any]) -> Split:
    """Return the split of a slot combination: a fixed hash, whatever the phrase and the seed."""
    text = "|".join([kind.name, *(f"{name}={slots[name]}" for name in kind.slots)])
    is_held_out = zlib.crc32(text.encode()) % HELD_OUT_SHARE == 0
    return Split.HELD_OUT if is_held_out else Split.TRAIN


def draw_slots(kind: Kind, split: Split, rng: random.Random) -> dict[str, Any]:
    """Draw slot values of a split."""
    while True:
        slots = {name: rng.choice(values) for name, values in kind.slots.items()}
        if split_of(kind, slots) is split:
            return slots


def make_task(kind: Kind, slots: Mapping[str, Any], rng: random.Random) -> Task:
    """Build the task of a request: its words and the tools that the product offers with it."""
    request = rng.choice(kind.phrases).format(**slots)
    tools = offered_tools(kind, rng.choice(TOOL_NAMES))
    names = "+".join(tool["function"]["name"] for tool in tools)
    return Task(
        task_id=f"{kind.name}:{request}:{names}",
        context=kind.name,
        messages=({"role": "user", "content": request},),
        tools=tools,
        reference={"kind": kind.name, "slots": dict(slots)},
    )


def draw_task(split: Split, rng: random.Random) -> Task:
    """Draw one task of a split."""
    kind = rng.choice(KINDS)
    return make_task(kind, draw_slots(kind, split, rng), rng)


def draw_tasks(split: Split, *, seed: int, count: int) -> list[Task]:
    """Draw tasks of a split, the kinds in turn so that each has its share."""
    rng = random.Random(f"{split}:{seed}")
    turns = (KINDS[index % len(KINDS)] for index in range(count))
    return [make_task(kind, draw_slots(kind, split, rng), rng) for kind in turns]
