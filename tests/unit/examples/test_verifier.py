import json
import random

import pytest

from examples.command_assistant.kinds import KIND_BY_NAME
from examples.command_assistant.tasks import make_task
from examples.command_assistant.taste import MAJORITY, Taste
from examples.command_assistant.verifier import verify

LIGHT = KIND_BY_NAME["light"]
TASK = make_task(LIGHT, {"room": "kitchen", "level": 30}, random.Random(1))


def call(name: str = "light", **arguments: object) -> str:
    given = {"room": "kitchen", "level": 30, "mode": "fade"} | arguments
    return json.dumps({"name": name, "arguments": given})


def test_a_valid_call_with_the_named_values_scores_one() -> None:
    assert verify(TASK, call()).score == 1.0


def test_each_wrong_value_costs_its_share() -> None:
    verification = verify(TASK, call(room="attic"))
    assert verification.score == 0.5
    assert not verification.is_malformed
    assert verification.reason == "wrong room"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sure, done",
        "{",
        '{"name":"light","arguments":{"room":"kitchen","level":30}}',
        '{"name":"launch","arguments":{}}',
        call(level="30"),
        call(mode="loud"),
        call(extra=1),
        call() + " and more",
        call() + call(),
    ],
)
def test_what_breaks_the_form_is_malformed_and_scores_zero(text: str) -> None:
    verification = verify(TASK, text)
    assert verification.score == 0.0
    assert verification.is_malformed


def test_the_verifier_is_blind_to_taste() -> None:
    assert {verify(TASK, call(mode=way.name)).score for way in LIGHT.ways} == {1.0}


def test_taste_wants_the_liked_way_and_nothing_wrong() -> None:
    taste = Taste(MAJORITY)
    assert taste.accepts(TASK, call(mode=MAJORITY["light"]))
    assert not taste.accepts(TASK, call(mode="snap"))
    assert not taste.accepts(TASK, call(mode=MAJORITY["light"], level=40))
    assert not taste.accepts(TASK, "sure, done")
