import pytest

from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics_file import parse_metrics

NOTE = '[metrics.n]\ntype = "comment"\nwindow_s = 1\n'
SOLVED = '[metrics.solved]\ntype = "bool"\nlevel = "trajectory"\nwindow_s = 1\n'
ACCEPTED = '[metrics.accepted]\ntype = "bool"\nwindow_s = 10\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "metrics: Field required"),
        ("[metrics]", "at least 1 item"),
        ('[metrics.a]\ntype = "bool"', "window_s: Field required"),
        (ACCEPTED + "windows = 3", r"metrics.accepted.windows: Extra inputs.*value: 3"),
        (ACCEPTED + "default = 0.0", "no bool"),
        (ACCEPTED + "default = true\noptional = true", "not both"),
        (ACCEPTED + "range = [0, 2]", "unless it is summed"),
        (ACCEPTED + "window_s = 0", "is no TOML"),
        ('[metrics.a]\ntype = "bool"\nwindow_s = 0', "greater than 0"),
        ('[metrics.a]\ntype = "float"\nwindow_s = 1', "needs `range"),
        ('[metrics.a]\ntype = "bool"\nwindow_s = 1\naggregation = "sum"', "needs `range"),
        ('[metrics.a]\ntype = "float"\nwindow_s = 1\nrange = [2, 1]', "range must rise"),
        ('[metrics.a]\ntype = "float"\nwindow_s = 1\nrange = [0, nan]', "finite"),
        ('[metrics.a]\ntype = "float"\nwindow_s = 1\nrange = [0, 1]\ndefault = 2.0', "outside"),
        ('[metrics.a]\ntype = "float"\nwindow_s = 1\nrange = [0, 1]\ndefault = true', "no float"),
        ('[metrics.a]\ntype = "comment"\nwindow_s = 1', "no reward"),
        ('[metrics.a]\ntype = "comment"\nwindow_s = 1\nweight = 1.0', "`weight` has no meaning"),
        ('[metrics.a]\ntype = "comment"\nwindow_s = 1\noptional = true', "`optional` has no"),
        ('[metrics.a]\ntype = "bool"\nwindow_s = 1\nweight = 0', "no reward"),
        ('[metrics."a b"]\ntype = "bool"\nwindow_s = 1', "should match pattern"),
        (ACCEPTED + '[verifiers.accepted]\nplugin = "x"', "share the name"),
        (ACCEPTED + "[verifiers.v]\nweight = 1", "plugin: Field required"),
        (ACCEPTED + "[more]", "Extra inputs"),
    ],
)
def test_a_metrics_file_that_cannot_be_is_refused_by_name(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_metrics(text)


def test_the_window_is_the_longest_one() -> None:
    text = ACCEPTED + '[metrics.note]\ntype = "comment"\nwindow_s = 25.5\n'
    assert parse_metrics(text).window_s == 25.5


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (ACCEPTED + "closes = true\n" + SOLVED, "nobody would wait for solved"),
        (ACCEPTED + SOLVED + "closes = true\n", "only a scored metric of an interaction"),
        (ACCEPTED + "weight = 0\ncloses = true\n", "only a scored metric of an interaction"),
        (
            ACCEPTED + '[metrics.n]\ntype = "comment"\nwindow_s = 1\ncloses = true',
            "`closes` has no",
        ),
    ],
)
def test_what_closes_is_scored_and_waits_for_no_trajectory(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        parse_metrics(text)


def test_a_comment_may_say_that_it_weighs_nothing() -> None:
    text = ACCEPTED + '[metrics.note]\ntype = "comment"\nwindow_s = 1\nweight = 0'
    assert not parse_metrics(text).metrics["note"].is_scored


def test_the_hash_ignores_order_and_spelled_out_defaults() -> None:
    other = '[metrics.other]\ntype = "bool"\nwindow_s = 1\n'
    first = parse_metrics(ACCEPTED + other)
    second = parse_metrics(other + "weight = 1.0\n" + ACCEPTED)
    assert first.reward_spec_hash == second.reward_spec_hash


@pytest.mark.parametrize(
    "change",
    ["weight = 2.0", "default = false", 'direction = "lower"', "veto_below = 0.5"],
)
def test_the_hash_changes_with_whatever_decides_a_reward(change: str) -> None:
    plain, changed = parse_metrics(ACCEPTED), parse_metrics(ACCEPTED + change)
    assert plain.reward_spec_hash != changed.reward_spec_hash
