from typing import Any

import pytest

from tests.factories import NOW
from tests.unit.tidemill.rewards.test_votes import vote
from tidemill.contracts.events import Edit, FeedbackValue
from tidemill.errors import ConfigurationError
from tidemill.rewards.composite import compute_reward
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.rewards.signals import PRESETS, Signal
from tidemill.rewards.votes import votes_that_count


def spec_of(signal: str, more: str = "") -> MetricsFile:
    return parse_metrics(f'[metrics.m]\nsignal = "{signal}"\n{more}')


@pytest.mark.parametrize(
    ("signal", "values", "reward"),
    [
        ("accept", [True], 1.0),
        ("accept", [False], 0.0),
        ("accept", [], None),  # nobody said: no reward
        ("undo", [True], 0.0),
        ("undo", [True, False], 0.0),  # taken back once is taken back
        ("undo", [], 1.0),
        ("edit_kept", [Edit(kept_fraction=0.9), Edit(kept_fraction=0.25)], 0.25),
        ("edit_kept", [], None),
        ("retry", [True], 0.0),
        ("retry", [], 1.0),
        ("dissatisfied", [True], 0.0),
        ("dissatisfied", [], 1.0),
    ],
)
def test_a_signal_is_scored_as_it_is_meant(
    signal: str, values: list[FeedbackValue], reward: float | None
) -> None:
    spec = spec_of(signal)
    votes = [vote(number, value, metric="m") for number, value in enumerate(values, start=1)]
    chosen = votes_that_count(votes, spec, served_at=NOW)
    made = compute_reward(spec, chosen, completion="", checked={})
    assert (None if made is None else made.value) == reward
    assert made is None or made.is_defaulted == (not values)


def test_an_edit_counts_as_the_end_of_the_window_found_it() -> None:
    spec = spec_of("edit_kept", "window_s = 600")
    votes = [
        vote(at, Edit(kept_fraction=kept), metric="m")
        for at, kept in ((1, 1.0), (599, 0.5), (601, 0.0))
    ]
    chosen = votes_that_count(votes, spec, served_at=NOW)
    made = compute_reward(spec, chosen, completion="", checked={})
    assert made is not None
    assert made.value == 0.5


@pytest.mark.parametrize("signal", Signal)
def test_what_is_declared_stands_and_the_rest_is_filled_in(signal: Signal) -> None:
    plain = spec_of(signal).metrics["m"]
    described = plain.describe()
    assert PRESETS[signal].items() <= described.items()
    assert described["signal"] == signal
    own = spec_of(signal, "window_s = 7\nweight = 0.5").metrics["m"]
    assert (own.window_s, own.weight, own.type) == (7, 0.5, plain.type)


@pytest.mark.parametrize("more", ["", "optional = true", "default = true"])
def test_a_described_signal_reads_back_as_it_was(more: str) -> None:
    for signal in Signal:
        if signal is Signal.EDIT_KEPT and "default" in more:
            continue
        spec = spec_of(signal, more)
        body: dict[str, Any] = spec.describe()
        del body["reward_spec_hash"]
        again = MetricsFile.model_validate(body)
        assert again == spec
        assert again.reward_spec_hash == spec.reward_spec_hash


def test_silence_may_be_declared_otherwise() -> None:
    assert spec_of("undo", "optional = true").metrics["m"].default is None
    assert spec_of("accept", "default = false").metrics["m"].optional is False
    assert spec_of("undo", "optional = false").metrics["m"].default is None


@pytest.mark.parametrize(
    ("signal", "more", "complaint"),
    [
        ("shrug", "", "no signal 'shrug'; there are accept, undo, edit_kept, retry"),
        ("undo", 'direction = "higher"', "the signal undo has the direction lower, not higher"),
        ("undo", 'type = "float"', "the signal undo has the type bool, not float"),
    ],
)
def test_a_signal_that_cannot_be_is_refused(signal: str, more: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        spec_of(signal, more)
