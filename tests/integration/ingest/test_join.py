"""Feedback meets its interaction, whichever comes first, on both databases."""

from typing import Any

import pytest

from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import Rig, seconds
from tidemill.contracts.events import (
    FEEDBACK,
    INTERACTIONS,
    Comment,
    FeedbackReceived,
    ToolCall,
)
from tidemill.contracts.experience import Outcome
from tidemill.storage.database import Database


@pytest.fixture
def rig(any_database: Database) -> Rig:
    return Rig(any_database)


@pytest.mark.parametrize("first", [INTERACTIONS, FEEDBACK])
def test_either_may_be_read_first(rig: Rig, first: str) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, feedback_id="f"), seconds(5))
    rig.read(only=first)
    if first == FEEDBACK:
        assert rig.state_of("f") == "pending"
    rig.run_to(seconds(61))
    assert rig.state_of("f") == "joined"
    assert rig.interaction(interaction.interaction_id).state == "rewarded"
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1.0
    assert experience.components == {"accepted": 1.0}
    assert experience.behaviour_logprobs == interaction.behaviour_logprobs


def test_nothing_closes_before_its_window_is_over(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction), seconds(1))
    rig.run_to(seconds(59.9))
    assert rig.interaction(interaction.interaction_id).state == "open"
    assert rig.experience(interaction.interaction_id) is None


def test_an_interaction_waits_until_the_feedback_log_is_read_beyond_its_window(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, value=False), seconds(50))
    rig.read(only=INTERACTIONS)
    # The wall clock is far ahead, but the worker lags behind the log.
    assert rig.close_at(seconds(600)) == 0
    rig.read()
    assert rig.close_at(seconds(600)) == 1
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 0.0


def test_feedback_after_the_window_is_late_and_changes_nothing(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, feedback_id="in", value=True), seconds(60))
    rig.log.put(make_feedback(interaction, feedback_id="out", value=False), seconds(60.001))
    rig.run_to(seconds(100))
    assert (rig.state_of("in"), rig.state_of("out")) == ("joined", "late")
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1.0


def test_each_metric_has_its_own_window(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    note = make_feedback(
        interaction, feedback_id="n", metric="note", value=Comment(comment="too long")
    )
    rig.log.put(note, seconds(31))
    rig.read()
    assert rig.state_of("n") == "late"


def test_the_last_vote_of_a_rater_wins_in_log_order(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    for number, value in enumerate((True, True, False)):
        one = make_feedback(interaction, feedback_id=f"f{number}", value=value, rater="r")
        rig.log.put(one, seconds(number + 1))
    other = make_feedback(interaction, feedback_id="late", value=True, rater="r")
    rig.log.put(other, seconds(90))
    rig.run_to(seconds(100))
    states = [rig.state_of(f"f{number}") for number in range(3)]
    assert states == ["superseded", "superseded", "joined"]
    assert rig.state_of("late") == "late"
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 0.0


def test_a_repeat_is_a_duplicate_and_another_body_a_dead_letter(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    one = make_feedback(interaction, feedback_id="f", value=True, body_digest="a")
    rig.log.put(one, seconds(1))
    rig.log.put(one, seconds(2))
    rig.log.put(interaction, seconds(2))
    rig.read()
    conflict = make_feedback(interaction, feedback_id="f", value=False, body_digest="b")
    rig.log.put(one, seconds(3))
    rig.log.put(conflict, seconds(4))
    rig.run_to(seconds(100))
    assert sorted(row.record_id for row in rig.duplicates()) == sorted(
        ["f", "f", interaction.interaction_id]
    )
    (letter,) = rig.dead_letters()
    assert (letter.reason, letter.record_id, letter.tenant) == ("conflicting_body", "f", "default")
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.reward == 1.0


def test_an_interaction_with_another_body_is_a_dead_letter(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction)
    rig.log.put(interaction.model_copy(update={"turn": 5}))
    rig.read()
    (letter,) = rig.dead_letters()
    assert letter.reason == "conflicting_body"
    assert rig.interaction(interaction.interaction_id).turn == 0


def test_feedback_without_its_interaction_becomes_a_dead_letter_in_time(rig: Rig) -> None:
    feedback = make_feedback(feedback_id="f")
    rig.log.put(feedback, seconds(0))
    rig.run_to(seconds(599))
    assert rig.state_of("f") == "pending"
    rig.run_to(seconds(601))
    assert rig.state_of("f") == "dead_lettered"
    (letter,) = rig.dead_letters()
    assert (letter.reason, letter.owns_record) == ("unmatched", False)
    assert FeedbackReceived.model_validate_json(letter.payload) == feedback


@pytest.mark.parametrize("expired_first", [True, False])
def test_an_interaction_that_comes_too_late_finds_no_feedback(
    rig: Rig, expired_first: bool
) -> None:
    interaction = make_interaction()
    rig.log.put(make_feedback(interaction, feedback_id="f"), seconds(0))
    rig.read()
    if expired_first:
        rig.close_at(seconds(650))
    rig.log.put(interaction, seconds(700))
    rig.run_to(seconds(800))
    assert rig.state_of("f") == "dead_lettered"
    assert len(rig.dead_letters()) == 1
    assert rig.interaction(interaction.interaction_id).excluded_reason == "silent"


def test_an_unknown_metric_and_a_wrong_value_are_dead_letters(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction)
    wrong: dict[str, dict[str, Any]] = {
        "a": {"metric": "nobody"},
        "b": {"value": 1.0},
        "c": {"metric": "stars", "value": 6.0},
        "d": {"metric": "solved", "value": True},
        "e": {"interaction_id": None},
    }
    for feedback_id, change in wrong.items():
        rig.log.put(make_feedback(interaction, feedback_id=feedback_id, **change))
    rig.read()
    reasons = {letter.record_id: letter.reason for letter in rig.dead_letters()}
    assert reasons == {"a": "unknown_metric"} | dict.fromkeys("bcde", "wrong_type")


def test_feedback_on_a_trajectory_counts_for_all_its_interactions(rig: Rig) -> None:
    first = make_interaction()
    second = make_interaction(trajectory_id=first.trajectory_id, turn=1)
    rig.log.put(first, seconds(0))
    rig.log.put(second, seconds(10))
    for interaction in (first, second):
        rig.log.put(make_feedback(interaction, value=True), seconds(11))
    solved = make_feedback(
        first, feedback_id="s", metric="solved", value=False, interaction_id=None
    )
    rig.log.put(solved, seconds(65))
    rig.run_to(seconds(100))
    # 65 s is beyond the first one's window, within the second one's.
    rewards = [rig.experience(one.interaction_id) for one in (first, second)]
    assert [one.reward for one in rewards if one is not None] == [1.0, 0.5]
    assert rig.state_of("s") == "joined"


def test_feedback_of_another_tenant_never_joins(rig: Rig) -> None:
    interaction = make_interaction()
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, tenant="other"), seconds(1))
    rig.run_to(seconds(100))
    assert rig.interaction(interaction.interaction_id).excluded_reason == "silent"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"consent_train": False}, "no_consent"),
        ({"completion_ids": ()}, "incomplete"),
        ({}, "silent"),
    ],
)
def test_what_nobody_may_learn_from_is_excluded_with_its_reason(
    rig: Rig, change: dict[str, Any], reason: str
) -> None:
    interaction = make_interaction(**change)
    rig.log.put(interaction, seconds(0))
    rig.run_to(seconds(61))
    row = rig.interaction(interaction.interaction_id)
    assert (row.state, row.excluded_reason) == ("excluded", reason)
    assert rig.experience(interaction.interaction_id) is None


def test_a_malformed_output_is_scored_zero_whatever_the_users_say(rig: Rig) -> None:
    bad = ToolCall(name="x", arguments="{", valid=False, reason="not JSON")
    interaction = make_interaction(tool_calls=(bad,))
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction, value=True), seconds(1))
    rig.run_to(seconds(61))
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert (experience.outcome, experience.reward) == (Outcome.MALFORMED, 0.0)


def test_without_log_probs_an_experience_is_kept(rig: Rig) -> None:
    interaction = make_interaction(behaviour_logprobs=None)
    rig.log.put(interaction, seconds(0))
    rig.log.put(make_feedback(interaction), seconds(1))
    rig.run_to(seconds(61))
    experience = rig.experience(interaction.interaction_id)
    assert experience is not None
    assert experience.behaviour_logprobs is None
