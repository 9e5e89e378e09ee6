import random

import pytest

from examples.command_assistant.kinds import KIND_BY_NAME, KINDS
from examples.command_assistant.tasks import make_task
from examples.command_assistant.tools import answer_text
from examples.command_assistant.verifier import verify

LIGHT = KIND_BY_NAME["light"]
SLOTS = {"room": "kitchen", "level": 30}
TASK = make_task(LIGHT, SLOTS, random.Random(0))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_way_is_valid_whatever_the_taste(kind) -> None:
    slots = {name: values[0] for name, values in kind.slots.items()}
    task = make_task(kind, slots, random.Random(1))
    for way in kind.ways:
        found = verify(task, answer_text(kind, slots, way))
        assert (found.score, found.is_malformed, found.reason) == (1.0, False, "right")


@pytest.mark.parametrize(
    ("text", "score", "is_malformed"),
    [
        # One of two named arguments is right.
        ('{"name":"light","arguments":{"room":"hall","level":30,"mode":"fade"}}', 0.5, False),
        ('{"name":"light","arguments":{"room":"hall","level":40,"mode":"fade"}}', 0.0, False),
        # The form from before the tool had `mode`.
        ('{"name":"light","arguments":{"room":"kitchen","level":30}}', 0.0, True),
        ('{"name":"light","arguments":{"room":"kitchen","level":31,"mode":"fade"}}', 0.0, True),
        ('{"name":"lamp","arguments":{"room":"kitchen","level":30,"mode":"fade"}}', 0.0, True),
        ('{"name":"light","arguments":{"room":"kitchen"', 0.0, True),
        ("done!", 0.0, True),
        ("", 0.0, True),
    ],
)
def test_wrong_answers(text, score, is_malformed) -> None:
    found = verify(TASK, text)
    assert (found.score, found.is_malformed) == (score, is_malformed)
    assert set(found.components) == {"form", "tool", "arguments"}


def test_a_valid_call_of_another_offered_tool_scores_nothing() -> None:
    tools = KIND_BY_NAME["heating"]
    call = answer_text(tools, {"room": "kitchen", "degrees": 20}, tools.ways[0])
    # Until the draw offers `heat` beside `light`.
    tasks = (make_task(LIGHT, SLOTS, random.Random(seed)) for seed in range(100))
    task = next(t for t in tasks if any(x["function"]["name"] == "heat" for x in t.tools))
    found = verify(task, call)
    assert (found.score, found.is_malformed, found.reason) == (0.0, False, "heat is the wrong tool")
