import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from ingest.api_schemas import FeedbackBody, InteractionBody
from ingest.feedback_records import FeedbackEncoder
from tests.factories import NOW, VERSION
from tidemill.contracts.codec import decode
from tidemill.contracts.events import Arm, FeedbackReceived, InteractionServed
from tidemill.contracts.ids import trajectory_of
from tidemill.subjects import SubjectHasher

TRAJECTORY = "0193e3a0-0000-7000-8000-000000000001"
INTERACTION = f"{TRAJECTORY}.0193e3a0-0001-7000-8000-000000000002"
OTHER = "0193e3a0-0000-7000-8000-00000000ffff"
HASHER = SubjectHasher(b"0123456789abcdef")

FEEDBACK = {"feedback_id": "f", "interaction_id": INTERACTION, "metric": "accepted", "value": True}
SERVED: dict[str, Any] = {
    "policy_version": VERSION,
    "content": {"messages": [{"role": "user", "content": "hi"}], "completion": "hello"},
    "prompt_ids": [1, 2],
    "completion_ids": [3],
    "behaviour_logprobs": [-0.5],
    "sampling": {"temperature": 1.0, "max_tokens": 8},
    "served_at": "2026-12-01T12:00:00Z",
    "latency_ms": 250,
}


def feedback(**over: Any) -> FeedbackReceived:
    body = FeedbackBody.model_validate_json(json.dumps(FEEDBACK | over))
    record = FeedbackEncoder(tenant="t", hasher=HASHER, received_at=NOW).record(body)
    return decode(FeedbackReceived, record.record.value)


def served(**over: Any) -> InteractionServed:
    body = InteractionBody.model_validate_json(json.dumps(SERVED | over))
    return body.to_event(tenant="t", model="tide", hasher=HASHER, consent_default=False)


def test_feedback_names_an_interaction_or_a_trajectory() -> None:
    assert feedback().trajectory_id == TRAJECTORY
    assert feedback().target_id == INTERACTION
    whole = feedback(interaction_id=None, trajectory_id=TRAJECTORY)
    assert (whole.interaction_id, whole.target_id) == (None, TRAJECTORY)
    assert feedback(trajectory_id=TRAJECTORY).interaction_id == INTERACTION


def test_an_id_is_made_where_none_was_given() -> None:
    assert feedback(feedback_id=None).feedback_id != feedback(feedback_id=None).feedback_id


def test_the_rater_is_hashed_and_never_kept() -> None:
    event = feedback(rater="joe@example.com")
    assert event.rater == HASHER.subject("t", "joe@example.com")
    assert "joe" not in event.model_dump_json()


def test_the_body_digest_tells_bodies_apart_and_spellings_not() -> None:
    assert feedback(value=1).body_digest == feedback(value=1.0, source="end_user").body_digest
    assert feedback(feedback_id="g").body_digest == feedback().body_digest
    at = "2026-12-01T14:00:00+02:00"
    assert feedback(at=at).body_digest == feedback(at="2026-12-01T12:00:00Z").body_digest
    for change in (
        {"value": False},
        {"value": 1},
        {"metric": "other"},
        {"rater": "a"},
        {"source": "judge"},
        {"at": at},
    ):
        assert feedback(**change).body_digest != feedback().body_digest


@pytest.mark.parametrize(
    "change",
    [
        {"interaction_id": None},
        {"interaction_id": "x"},
        {"interaction_id": INTERACTION.upper()},
        {"trajectory_id": OTHER},
        {"trajectory_id": "x"},
        {"interaction_id": None, "trajectory_id": TRAJECTORY.upper()},
        {"feedback_id": "a b"},
        {"feedback_id": ""},
        {"metric": ""},
        {"metric": "a\0"},
        {"rater": ""},
        {"rater": "\0"},
        {"value": {"comment": "\0"}},
        {"value": None},
        {"value": "yes"},
        {"value": []},
        {"value": {"comment": ""}},
        {"at": "2026-12-01T12:00:00"},
        {"source": "somebody"},
        {"surprise": 1},
    ],
)
def test_feedback_that_breaks_a_rule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        feedback(**change)


def test_an_interaction_of_a_product_becomes_the_same_event_as_one_of_ours() -> None:
    event = served(subject="joe", consent=True)
    assert (event.arm, event.assignment_probability) == (Arm.EXTERNAL, 1.0)
    assert event.subject == HASHER.subject("t", "joe")
    assert (event.model, event.consent_train) == ("tide", True)
    assert event.served_at - event.requested_at == timedelta(milliseconds=250)
    assert trajectory_of(event.interaction_id) == event.trajectory_id


def test_consent_that_nobody_gave_is_the_setting() -> None:
    assert not served().consent_train
    assert served(model="other").model == "other"


def test_given_ids_are_kept() -> None:
    assert served(interaction_id=INTERACTION).trajectory_id == TRAJECTORY
    assert served(trajectory_id=TRAJECTORY).interaction_id.startswith(TRAJECTORY)


@pytest.mark.parametrize(
    "change",
    [
        {"interaction_id": "x"},
        {"trajectory_id": "x"},
        {"interaction_id": INTERACTION, "trajectory_id": OTHER},
        {"served_at": None},
        {"behaviour_logprobs": [-0.5, -0.5]},
        {"behaviour_logprobs": [0.5]},
        {"behaviour_logprobs": [-1e308]},
        {"kept_mass": [0.0]},
        {"kept_mass": [1.1]},
        {"kept_mass": [float("nan")]},
        {"prompt_ids": [2**31]},
        {"completion_ids": [-1]},
        {"turn": 2**31},
        {"policy_version": "v1"},
        {"subject": "\0"},
        {"sampling": {"temperature": 0, "max_tokens": 8}},
        {"surprise": 1},
    ],
)
def test_an_interaction_that_breaks_a_rule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        served(**change)
