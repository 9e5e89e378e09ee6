import json

import pytest

from examples.command_assistant.dataset import (
    LIKED_SHARE,
    OUTDATED_SHARE,
    WRONG_SHARE,
    supervised_examples,
)
from examples.command_assistant.kinds import KIND_BY_NAME, KINDS
from examples.command_assistant.tasks import draw_tasks
from examples.command_assistant.taste import MAJORITY
from tidemill.environments.base import Split
from tidemill.policy.tool_calls import parse_tool_calls

COUNT = 3000


@pytest.fixture(scope="module")
def examples():
    return list(supervised_examples(1, COUNT))


def test_equal_seeds_give_equal_examples(examples) -> None:
    assert list(supervised_examples(1, 50)) == examples[:50]
    assert list(supervised_examples(2, 50)) != examples[:50]


def test_no_held_out_request_is_learned_from(examples) -> None:
    tasks = draw_tasks(Split.HELD_OUT, seed=0, count=2000)
    asked = {messages[0]["content"] for messages, _, _ in examples}
    assert not asked & {task.messages[0]["content"] for task in tasks}


def test_outdated_answers_have_their_share(examples) -> None:
    valid = [
        parse_tool_calls(answer, tools).tool_calls[0].valid for _, tools, answer in examples[:1000]
    ]
    # Standard error 0.012.
    assert 1 - sum(valid) / len(valid) == pytest.approx(OUTDATED_SHARE, abs=0.04)


def test_no_kind_is_answered_mostly_as_people_like_today(examples) -> None:
    of_tool = {way.tool: kind for kind in KINDS for way in kind.ways}
    counts = {kind.name: [0, 0] for kind in KINDS}
    for _, _, answer in examples:
        call = json.loads(answer)
        kind = of_tool[call["name"]]
        liked = next(way for way in KIND_BY_NAME[kind.name].ways if way.name == MAJORITY[kind.name])
        is_whole = kind.slots.keys() <= call["arguments"].keys()
        is_liked = call["name"] == liked.tool and liked.extra.items() <= call["arguments"].items()
        counts[kind.name][0] += is_whole and is_liked
        counts[kind.name][1] += 1
    for liked_count, total in counts.values():
        # About 500 of each kind: standard error 0.02.
        assert liked_count / total == pytest.approx((1 - OUTDATED_SHARE) * LIKED_SHARE, abs=0.08)
    assert OUTDATED_SHARE + WRONG_SHARE < 0.5
