import math
from typing import Any

import pytest

from serving.assignment import Assignment
from serving.interactions import NO_CALL, Caller, Draft, Prompt, judged_calls
from serving.lineup import Route
from tests.factories import NOW, VERSION
from tidemill.contracts.events import Arm, FinishReason, InteractionServed, Sampling, ToolCall
from tidemill.contracts.ids import new_interaction_id, new_trajectory_id
from tidemill.policy.engine.requests import Generation

TRAJECTORY = new_trajectory_id()
CALL = ToolCall(name="light", arguments="{}", valid=True)


def complete(**over: Any) -> InteractionServed:
    values: dict[str, Any] = {
        "request_id": "r",
        "prompt_ids": (1, 2),
        "completion_ids": (3, 4),
        "logprobs": (-0.5, -0.25),
        "kept_mass": None,
        "finish_reason": FinishReason.STOP,
        "text": "hello",
    }
    draft = Draft(
        interaction_id=new_interaction_id(TRAJECTORY),
        model="tide",
        caller=Caller(
            tenant="default",
            trajectory_id=TRAJECTORY,
            subject="hash",
            consent_train=True,
            context="lights",
        ),
        prompt=Prompt(
            messages=(
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"},
            ),
            prompt_ids=(1, 2),
        ),
        route=Route(VERSION, Assignment(Arm.CHALLENGER, 0.3)),
        sampling=Sampling(temperature=0.7, max_tokens=9),
        requested_at=NOW,
    )
    return draft.complete(
        Generation(**(values | over)), tool_calls=[CALL], served_at=NOW, latency_ms=4.0
    )


def test_the_event_holds_what_the_engine_gave() -> None:
    event = complete(kept_mass=(0.9, 0.8))

    assert event.prompt_ids == (1, 2)
    assert event.completion_ids == (3, 4)
    assert event.behaviour_logprobs == (-0.5, -0.25)
    assert event.kept_mass == (0.9, 0.8)
    assert event.sampling.temperature == 0.7


def test_the_event_holds_who_asked_and_who_answered() -> None:
    event = complete()

    assert event.turn == 1
    assert event.oldest_policy_version == event.newest_policy_version == VERSION
    assert (event.arm, event.assignment_probability) == (Arm.CHALLENGER, 0.3)
    assert (event.subject, event.context, event.consent_train) == ("hash", "lights", True)
    assert event.content.completion == "hello"
    assert event.tool_calls == (CALL,)


def test_log_probs_that_are_no_numbers_are_unknown() -> None:
    assert complete(logprobs=(-0.5, -math.inf)).behaviour_logprobs is None
    broken = complete(logprobs=(-0.5, math.nan), kept_mass=(0.9, math.nan))
    assert (broken.behaviour_logprobs, broken.kept_mass) == (None, None)


@pytest.mark.parametrize(
    ("calls", "must_call", "reason", "expected"),
    [
        ([CALL], True, FinishReason.STOP, [None]),
        ([], False, FinishReason.STOP, []),
        ([], True, FinishReason.STOP, [NO_CALL]),
        ([], True, FinishReason.ABORTED, []),
    ],
)
def test_a_demanded_call(
    calls: list[ToolCall], must_call: bool, reason: FinishReason, expected: list[str | None]
) -> None:
    judged = judged_calls(calls, must_call=must_call, finish_reason=reason)
    assert [call.reason for call in judged] == expected
