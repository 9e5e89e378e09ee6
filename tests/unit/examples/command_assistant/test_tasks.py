import random

import pytest

from examples.command_assistant.environment import CommandAssistant
from examples.command_assistant.kinds import KINDS
from examples.command_assistant.tasks import draw_slots, draw_task, draw_tasks, split_of
from examples.command_assistant.tools import TOOLS
from tidemill.environments.base import Split, Task
from tidemill.environments.loading import load_environment


def _asked(tasks: list[Task]) -> set[tuple[object, ...]]:
    return {(task.context, *task.reference["slots"].values()) for task in tasks}


def test_splits_share_no_request() -> None:
    train = draw_tasks(Split.TRAIN, seed=1, count=3000)
    held_out = draw_tasks(Split.HELD_OUT, seed=1, count=3000)
    assert not _asked(train) & _asked(held_out)


def test_a_split_does_not_depend_on_the_seed() -> None:
    first = draw_tasks(Split.HELD_OUT, seed=1, count=600)
    second = draw_tasks(Split.TRAIN, seed=2, count=600)
    assert not _asked(first) & _asked(second)


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_slots_are_of_the_split_asked_for(kind, split) -> None:
    rng = random.Random(3)
    assert all(split_of(kind, draw_slots(kind, split, rng)) is split for _ in range(50))


def test_equal_seeds_give_equal_tasks() -> None:
    assert draw_tasks(Split.TRAIN, seed=4, count=50) == draw_tasks(Split.TRAIN, seed=4, count=50)
    assert draw_tasks(Split.TRAIN, seed=4, count=50) != draw_tasks(Split.TRAIN, seed=5, count=50)


def test_every_kind_has_its_share() -> None:
    tasks = draw_tasks(Split.HELD_OUT, seed=0, count=10 * len(KINDS))
    for kind in KINDS:
        assert sum(task.context == kind.name for task in tasks) == 10


def test_the_tools_of_the_answer_are_always_offered() -> None:
    rng = random.Random(5)
    for _ in range(200):
        task = draw_task(Split.TRAIN, rng)
        offered = {tool["function"]["name"] for tool in task.tools}
        kind = next(kind for kind in KINDS if kind.name == task.context)
        assert {way.tool for way in kind.ways} <= offered <= TOOLS.keys()


def test_the_environment_can_be_named_in_settings() -> None:
    found = load_environment("examples.command_assistant.environment:environment")
    assert isinstance(found, CommandAssistant)
    assert len(found.tasks(Split.HELD_OUT, seed=0, count=7)) == 7
