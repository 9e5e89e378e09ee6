"""What the base learns from: old transcripts, some right, some outdated, some plainly wrong."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

from examples.command_assistant.kinds import KINDS, Kind
from examples.command_assistant.tasks import draw_slots, make_task
from examples.command_assistant.taste import MAJORITY
from examples.command_assistant.tools import answer_text, call_text
from tidemill.environments.base import Split

OUTDATED_SHARE = 0.25
"""Answers from before the tools had all their arguments: no longer valid."""
WRONG_SHARE = 0.03
"""Answers with a value that nobody asked for."""
LIKED_SHARE = 0.33
"""Share of the valid answers that are given in the way that most people like today."""

Example = tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...], str]
"""(messages, tools, answer)."""


def supervised_examples(seed: int, count: int) -> Iterator[Example]:
    """Yield examples on requests of the training split; equal seeds give equal examples."""
    rng = random.Random(f"supervised:{seed}")
    for _ in range(count):
        kind = rng.choice(KINDS)
        slots = draw_slots(kind, Split.TRAIN, rng)
        task = make_task(kind, slots, rng)
        yield task.messages, task.tools, _answer(kind, slots, rng)


def _answer(kind: Kind, slots: Mapping[str, Any], rng: random.Random) -> str:
    draw = rng.random()
    if draw < OUTDATED_SHARE:
        *kept, _ = kind.slots
        return call_text(kind.ways[0].tool, {name: slots[name] for name in kept})
    if draw < OUTDATED_SHARE + WRONG_SHARE:
        name = rng.choice(list(kind.slots))
        slots = {**slots, name: rng.choice(kind.slots[name])}
    is_liked = rng.random() < LIKED_SHARE
    ways = [way for way in kind.ways if (way.name == MAJORITY[kind.name]) == is_liked]
    return answer_text(kind, slots, rng.choice(ways))
