import json
import math
from datetime import UTC, datetime

import pytest

from ingest.api_schemas import FeedbackBody, InteractionBody
from tests.feedback_clients import TARGET, feedback
from tidemill.client import (
    Feedback,
    Interaction,
    InvalidRecordError,
    comment,
    demonstration,
    final_text,
    kept_fraction,
)
from tidemill.client.ids import new_id
from tidemill.contracts.ids import is_feedback_id, is_interaction_id, is_trajectory_id

TRAJECTORY = TARGET.split(".")[0]
SAMPLING = {"temperature": 1.0, "max_tokens": 8}
CONTENT = {"messages": [{"role": "user", "content": "hi"}], "completion": "yes"}


def _interaction(**over) -> Interaction:
    given = {"policy_version": "v3-0123456789ab", "content": CONTENT, "sampling": SAMPLING}
    return Interaction(**given | over)


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0.25,
        3,
        comment("zu lang \U0001f9ed"),
        demonstration("so\nand so"),
        kept_fraction(0.5),
        final_text(""),
    ],
)
def test_the_api_takes_every_kind_of_value(value) -> None:
    body = FeedbackBody.model_validate_json(feedback("f1", value=value).encoded)
    read = body.value if isinstance(value, bool | float | int) else body.value.model_dump()
    if isinstance(value, dict):
        read = {name: read[name] for name in value}
    assert read == value
    assert isinstance(read, bool) == isinstance(value, bool)


def test_the_api_takes_every_field() -> None:
    at = datetime(2026, 12, 1, 12, tzinfo=UTC)
    sent = Feedback(
        feedback_id="order-7:thumb",
        trajectory_id=TRAJECTORY,
        metric="solved",
        value=1.0,
        source="reviewer",
        rater="user-17",
        at=at,
    )
    body = FeedbackBody.model_validate_json(sent.encoded)
    assert body.model_dump(exclude_none=True) == {
        "feedback_id": "order-7:thumb",
        "trajectory_id": TRAJECTORY,
        "metric": "solved",
        "value": 1.0,
        "source": "reviewer",
        "rater": "user-17",
        "at": at,
    }


def test_feedback_has_an_id_of_its_own_where_none_is_given() -> None:
    first, second = feedback(), feedback()
    assert first.feedback_id != second.feedback_id
    assert is_feedback_id(first.feedback_id)
    assert json.loads(first.encoded)["feedback_id"] == first.feedback_id


def test_ids_are_uuids_that_grow_with_time(monkeypatch) -> None:
    made = []
    for moment in (1_000, 2_000, 1_764_676_800_000):
        monkeypatch.setattr("time.time_ns", lambda moment=moment: moment * 1_000_000)
        made.append(new_id())
    assert made == sorted(made)
    assert all(is_trajectory_id(one) and one[14] == "7" and one[19] in "89ab" for one in made)


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ({"feedback_id": ""}, "feedback_id"),
        ({"feedback_id": "a" * 129}, "feedback_id"),
        ({"feedback_id": "a b"}, "feedback_id"),
        ({"interaction_id": None}, "interaction_id or a trajectory_id"),
        ({"value": math.nan}, "JSON"),
        ({"value": math.inf}, "JSON"),
        ({"value": comment("half a pair \ud800")}, "JSON"),
        ({"value": object()}, "JSON"),
        ({"at": datetime(2026, 12, 1)}, "zone"),
    ],
)
def test_what_no_api_takes_is_refused_when_it_is_made(over, says) -> None:
    with pytest.raises(InvalidRecordError, match=says):
        feedback(**over)


def test_a_value_that_changes_later_changes_nothing() -> None:
    value = comment("before")
    one = feedback("f1", value=value)
    value["comment"] = "after"
    assert json.loads(one.encoded)["value"] == {"comment": "before"}


def test_the_api_takes_a_whole_interaction() -> None:
    sent = _interaction(
        completion_ids=[3, 4],
        prompt_ids=(1, 2),
        behaviour_logprobs=[-0.5, -0.25],
        tool_calls=[{"name": "heat", "arguments": "{}", "valid": True}],
        subject="user-17",
        consent=True,
        turn=2,
        latency_ms=12.5,
    )
    body = InteractionBody.model_validate_json(sent.encoded)
    assert (body.completion_ids, body.behaviour_logprobs) == ((3, 4), (-0.5, -0.25))
    assert (body.turn, body.consent, body.kept_mass) == (2, True, None)
    assert body.served_at == sent.served_at
    assert body.tool_calls[0].name == "heat"
    assert is_interaction_id(body.interaction_id)
    assert body.interaction_id.startswith(f"{body.trajectory_id}.")


def test_an_interaction_brings_its_trajectory() -> None:
    assert _interaction(interaction_id=TARGET).trajectory_id == TRAJECTORY
    assert _interaction(trajectory_id=TRAJECTORY).interaction_id.startswith(f"{TRAJECTORY}.")
    both = _interaction(trajectory_id=new_id(), interaction_id=TARGET)
    # They contradict each other: that is for the API to say.
    assert both.trajectory_id != TRAJECTORY
    assert both.interaction_id == TARGET


def test_an_interaction_needs_an_aware_time() -> None:
    with pytest.raises(InvalidRecordError, match="served_at"):
        _interaction(served_at=datetime(2026, 12, 1))
