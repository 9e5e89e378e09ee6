import random

import pytest

from examples.command_assistant.kinds import KIND_BY_NAME, KINDS
from examples.command_assistant.tasks import make_task
from examples.command_assistant.taste import MAJORITY, MINORITY_SHARE, Taste, draw_taste
from examples.command_assistant.tools import answer_text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_exactly_one_way_is_liked(kind) -> None:
    slots = {name: values[0] for name, values in kind.slots.items()}
    task = make_task(kind, slots, random.Random(0))
    liked = [
        way.name
        for way in kind.ways
        if Taste(MAJORITY).accepts(task, answer_text(kind, slots, way))
    ]
    assert liked == [MAJORITY[kind.name]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sure",
        "[]",
        '{"name":"light"}',
        '{"name":"light","arguments":{"room":"hall","level":30,"mode":"fade"}}',
        '{"name":"light","arguments":{"room":"kitchen","level":30}}',
        '{"name":"light","arguments":{"room":"kitchen","level":"30","mode":"fade"}}',
    ],
)
def test_invalid_or_wrong_answers_please_nobody(text) -> None:
    kind = KIND_BY_NAME["light"]
    task = make_task(kind, {"room": "kitchen", "level": 30}, random.Random(0))
    assert not Taste(MAJORITY).accepts(task, text)


def test_most_users_share_a_taste() -> None:
    rng = random.Random(1)
    tastes = [draw_taste(rng) for _ in range(2000)]
    for kind in KINDS:
        share = sum(t.liked[kind.name] == MAJORITY[kind.name] for t in tastes) / len(tastes)
        # Standard error 0.0044.
        assert share == pytest.approx(1 - MINORITY_SHARE, abs=0.02)
        assert {t.liked[kind.name] for t in tastes} == {way.name for way in kind.ways}
