from typing import Any

import pytest

from ingest.closing import ExcludedReason, close, context_of, exclusion
from tests.factories import NOW, make_interaction
from tests.unit.tidemill.rewards.test_votes import vote
from tidemill.contracts.events import FinishReason, InteractionServed, Sampling, ToolCall
from tidemill.contracts.experience import Origin, Outcome
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.rewards.votes import Vote

SPEC = parse_metrics('[metrics.accepted]\ntype = "bool"\nwindow_s = 60')
DEFAULTED = parse_metrics('[metrics.accepted]\ntype = "bool"\nwindow_s = 60\ndefault = true')


def end(event: InteractionServed, votes: list[Vote], **over: Any) -> Any:
    spec = over.pop("spec", SPEC)
    checked = over.pop("checked", {})
    return close(event, votes, spec, served_at=NOW, checked=checked)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"consent_train": False, "completion_ids": ()}, "no_consent"),
        ({"finish_reason": FinishReason.ABORTED}, None),
        ({"prompt_ids": ()}, "incomplete"),
        ({"completion_ids": ()}, "incomplete"),
        ({"behaviour_logprobs": None}, None),
    ],
)
def test_what_nobody_may_learn_from(change: dict[str, Any], reason: str | None) -> None:
    event = make_interaction(**change)
    assert exclusion(event) == reason
    if reason is not None:
        closing = end(event, [vote(1)])
        assert (closing.state, closing.reason, closing.experience) == ("excluded", reason, None)


def test_an_answered_interaction_becomes_an_experience() -> None:
    event = make_interaction(
        sampling=Sampling(temperature=0.7, top_p=0.9, max_tokens=8), kept_mass=(0.9, 1.0, 0.95)
    )
    closing = end(event, [vote(1, False)])
    experience = closing.experience
    assert closing.state == "rewarded"
    assert experience.experience_id == event.interaction_id
    assert (experience.reward, experience.components) == (0.0, {"accepted": 0.0})
    assert (experience.origin, experience.outcome) == (Origin.LIVE, Outcome.REWARDED)
    assert (experience.temperature, experience.is_truncated) == (0.7, True)
    assert experience.kept_mass == event.kept_mass
    assert experience.prompt_ids == event.prompt_ids
    assert experience.reward_spec_hash == SPEC.reward_spec_hash


def test_an_aborted_interaction_is_scored_as_any_other() -> None:
    event = make_interaction(finish_reason=FinishReason.ABORTED)
    closing = end(event, [vote(1, False)])
    assert (closing.state, closing.experience.reward) == ("rewarded", 0.0)
    assert closing.experience.finish_reason == "aborted"


def test_silence_takes_the_default_or_none() -> None:
    assert end(make_interaction(), []).reason == "silent"
    assert end(make_interaction(), [vote(61)]).reason == "silent"
    closing = end(make_interaction(), [], spec=DEFAULTED)
    assert (closing.state, closing.experience.outcome) == ("defaulted", Outcome.DEFAULTED)


def test_a_malformed_output_is_scored_zero() -> None:
    bad = ToolCall(name="x", arguments="{", valid=False)
    for event in (
        make_interaction(tool_calls=(bad,)),
        make_interaction(finish_reason=FinishReason.ERROR),
    ):
        closing = end(event, [vote(1)], checked=ExcludedReason.VERIFIER_FAILED)
        assert closing.state == "malformed"
        assert (closing.experience.reward, closing.experience.components) == (0.0, {})


@pytest.mark.parametrize("reason", [ExcludedReason.VERIFIER_FAILED, ExcludedReason.JUDGE_FAILED])
def test_a_failed_check_is_no_zero(reason: ExcludedReason) -> None:
    closing = end(make_interaction(), [vote(1)], checked=reason)
    assert (closing.state, closing.reason, closing.experience) == ("excluded", reason, None)


def test_the_context_is_the_declared_one_or_a_hash_of_the_prompt() -> None:
    assert context_of(make_interaction(context="timer")) == "timer"
    hashed = context_of(make_interaction(context=None, prompt_ids=(1, 2)))
    assert hashed.startswith("prompt:")
    assert hashed == context_of(make_interaction(context=None, prompt_ids=(1, 2)))
    assert hashed != context_of(make_interaction(context=None, prompt_ids=(1, 3)))


def test_the_same_content_has_the_same_digest_whenever_it_closes() -> None:
    event = make_interaction()
    votes = [vote(1, False), vote(2, True, rater="s")]
    first, second = end(event, votes), end(event, votes[::-1])
    assert first.experience.digest == second.experience.digest
