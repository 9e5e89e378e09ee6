import random

import pytest

from examples.command_assistant.dataset import supervised_examples
from examples.command_assistant.environment import environment
from examples.command_assistant.kinds import KIND_BY_NAME, KINDS, slots_of_tool
from examples.command_assistant.tasks import draw_task, draw_tasks, split_of
from examples.command_assistant.tools import TOOL_NAMES, TOOLS, answer_text, offered_tools
from tidemill.environments.base import Split


def test_no_slot_combination_is_in_both_splits() -> None:
    for split in Split:
        for task in draw_tasks(split, seed=3, count=200):
            kind = KIND_BY_NAME[task.reference["kind"]]
            assert split_of(kind, task.reference["slots"]) is split


def test_held_out_requests_are_never_trained_on() -> None:
    held_out = {
        task.messages[0]["content"] for task in draw_tasks(Split.HELD_OUT, seed=1, count=400)
    }
    trained = {messages[0]["content"] for messages, _, _ in supervised_examples(1, 2000)}
    assert not held_out & trained


def test_every_kind_has_its_share_of_drawn_tasks() -> None:
    tasks = draw_tasks(Split.HELD_OUT, seed=1, count=2 * len(KINDS))
    assert [task.context for task in tasks] == [kind.name for kind in KINDS] * 2


def test_equal_seeds_give_equal_tasks_and_examples() -> None:
    assert environment.tasks(Split.TRAIN, seed=5, count=30) == draw_tasks(
        Split.TRAIN, seed=5, count=30
    )
    assert list(supervised_examples(5, 50)) == list(supervised_examples(5, 50))
    assert list(supervised_examples(5, 50)) != list(supervised_examples(6, 50))


def test_a_task_offers_the_tools_of_its_kind_in_the_fixed_order() -> None:
    task = draw_task(Split.TRAIN, random.Random(2))
    names = [tool["function"]["name"] for tool in task.tools]
    assert {way.tool for way in KIND_BY_NAME[task.context].ways} <= set(names)
    assert names == sorted(names, key=TOOL_NAMES.index)


def test_an_offered_stranger_comes_beside_the_own_tools() -> None:
    (light,) = (kind for kind in KINDS if kind.name == "light")
    assert offered_tools(light, "mail") == (TOOLS["light"], TOOLS["mail"])


def test_only_declared_tools_have_slots() -> None:
    with pytest.raises(KeyError):
        slots_of_tool("launch")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_way_of_a_kind_is_right(kind) -> None:  # type: ignore[no-untyped-def]
    task = next(t for t in draw_tasks(Split.TRAIN, seed=1, count=6) if t.context == kind.name)
    for way in kind.ways:
        answer = answer_text(kind, task.reference["slots"], way)
        verification = environment.verify(task, answer)
        assert verification.score == 1.0
        assert not verification.is_malformed
