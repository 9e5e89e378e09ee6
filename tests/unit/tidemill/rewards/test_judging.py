import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import make_interaction
from tidemill.errors import JudgeError
from tidemill.rewards.judging import judge_score, judge_scores, parse_score, questions_about
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.rubric import JudgeSpec, RubricItem


def judge(**over: Any) -> JudgeSpec:
    items = {"kind": RubricItem(question="Is it kind?"), "true": RubricItem(question="True?")}
    return JudgeSpec(**({"model": "m", "temperature": 1.0, "votes": 3, "items": items} | over))


def spec_of(one: JudgeSpec) -> MetricsFile:
    metrics: Any = {"accepted": {"type": "bool", "window_s": 60}}
    return MetricsFile(metrics=metrics, judges={"helpful": one})


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ('{"score": 0}', 0.0),
        (' {"score": 10}\n', 1.0),
        ('{"reason": "meh", "score": 7}', 0.7),
    ],
)
def test_a_score_is_a_whole_number_from_0_to_10(text: str, score: float) -> None:
    assert parse_score(text) == score


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        "null",
        "[]",
        "{}",
        "The score is 7.",
        '```json\n{"score": 7}\n```',
        '{"score": 7} and more',
        '{"score": "7"}',
        '{"score": 7.5}',
        '{"score": true}',
        '{"score": null}',
        '{"score": NaN}',
        '{"score": -1}',
        '{"score": 11}',
        '{"score": 1e400}',
        '{"score": 7, "verdict": "good"}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_no_score(text: str) -> None:
    with pytest.raises(JudgeError, match="no score"):
        parse_score(text)


@given(st.text())
def test_whatever_a_judge_says_is_a_score_or_an_error(text: str) -> None:
    with suppress(JudgeError):
        assert 0 <= parse_score(text) <= 1


@pytest.mark.parametrize(
    ("over", "score"),
    [
        ({}, 0.5),  # (median(0.1, 0.2, 0.9) + median(0.7, 0.8, 0.9)) / 2 = (0.2 + 0.8) / 2
        ({"aggregation": "mean"}, 0.6),  # (0.4 + 0.8) / 2
        (
            {
                "items": {
                    "kind": RubricItem(question="?", weight=3),
                    "true": RubricItem(question="?"),
                }
            },
            0.35,  # (3 * 0.2 + 0.8) / 4
        ),
        (
            {
                "items": {
                    "kind": RubricItem(question="?", veto_below=0.3),
                    "true": RubricItem(question="?"),
                }
            },
            0.0,
        ),
    ],
)
def test_votes_become_one_score(over: dict[str, Any], score: float) -> None:
    votes = {"kind": [0.9, 0.1, 0.2], "true": [0.8, 0.7, 0.9]}
    assert judge_score(judge(**over), votes) == pytest.approx(score)
    pairs = [("helpful", item, scores) for item, scores in votes.items()]
    assert judge_scores(spec_of(judge(**over)), pairs) == {"helpful": pytest.approx(score)}


@given(st.permutations([0.9, 0.1, 0.2]), st.sampled_from(["median", "mean"]))
def test_the_order_of_votes_does_not_matter(votes: list[float], how: str) -> None:
    one = judge(aggregation=how, items={"kind": RubricItem(question="?")})
    assert judge_score(one, {"kind": votes}) == judge_score(one, {"kind": [0.1, 0.2, 0.9]})


def test_each_item_is_asked_alone_with_the_whole_interaction_as_material() -> None:
    event = make_interaction()
    kind, true = questions_about(event, spec_of(judge()))
    assert (kind.judge, kind.item, kind.votes) == ("helpful", "kind", 3)
    assert (kind.request["model"], kind.request["temperature"]) == ("m", 1.0)
    material = json.loads(kind.request["messages"][1]["content"])
    assert material["criterion"] == "Is it kind?"
    assert material["answer"] == event.content.completion
    assert material["conversation"] == list(event.content.messages)
    assert true.digest != kind.digest


def test_the_digest_holds_all_that_decides_an_answer_and_nothing_else() -> None:
    def digest(one: JudgeSpec, **over: Any) -> str:
        return questions_about(make_interaction(**over), spec_of(one))[0].digest

    usual = digest(judge())
    assert digest(judge()) == usual  # another interaction, the same content
    assert digest(judge(weight=2, aggregation="mean")) == usual
    content = make_interaction().content
    others = {
        digest(judge(model="n")),
        digest(judge(votes=5)),
        digest(judge(temperature=0.5)),
        digest(judge(items={"kind": RubricItem(question="Is it rude?")})),
        digest(judge(), tenant="another"),
        digest(judge(), content=content.model_copy(update={"completion": "else"})),
    }
    assert len(others) == 6
    assert usual not in others
