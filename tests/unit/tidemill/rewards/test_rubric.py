import pytest

from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics_file import parse_metrics

METRIC = '[metrics.accepted]\ntype = "bool"\nwindow_s = 60\n'
JUDGE = '[judges.helpful]\nmodel = "m"\n{more}\n[judges.helpful.items.kind]\nquestion = "{text}"\n'


def text_of(more: str = "", text: str = "Is it kind?") -> str:
    return METRIC + JUDGE.format(more=more, text=text)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (METRIC + '[judges.helpful]\nmodel = "m"', "judges.helpful.items"),
        (METRIC + '[judges.helpful]\nmodel = "m"\n[judges.helpful.items]', "at least 1 item"),
        (text_of("votes = 0"), "greater than or equal to 1"),
        (text_of("votes = 3"), "3 votes at temperature 0 are one vote"),
        (text_of("weight = 1e-9"), "a weight is 0 or at least 1e-06, got 1e-09"),
        (text_of("url = 'http://x'"), "judges.helpful.url"),
        (text_of("aggregation = 'most'"), "'median' or 'mean'"),
        (text_of() + "weight = 0", "no item has a weight"),
        (text_of().replace("helpful", "accepted"), "a metric and a judge share the name"),
    ],
)
def test_a_judge_that_cannot_be_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_metrics(text)


def test_a_judge_alone_may_be_the_reward() -> None:
    remark = '[metrics.remark]\ntype = "comment"\nwindow_s = 60\n'
    assert parse_metrics(text_of().replace(METRIC, remark)).judges["helpful"].weight == 1
    with pytest.raises(ConfigurationError, match="no metric, verifier or judge has a weight"):
        parse_metrics(text_of("weight = 0").replace(METRIC, remark))


def test_rubric_and_model_are_part_of_the_reward_spec() -> None:
    hashes = {
        parse_metrics(text).reward_spec_hash
        for text in (
            METRIC,
            text_of(),
            text_of(text="Is it short?"),
            text_of().replace('"m"', '"n"'),
            text_of("temperature = 1.0\nvotes = 3"),
            text_of("weight = 2.0"),
        )
    }
    assert len(hashes) == 6
