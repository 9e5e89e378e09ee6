import json
from typing import Any

import pytest

from ingest.decoding import Unusable, decode_feedback, decode_interaction
from tests.factories import NOW, make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tidemill.contracts.codec import encode
from tidemill.contracts.events import (
    FEEDBACK,
    INTERACTIONS,
    Comment,
    DeadLetterReason,
    Event,
)
from tidemill.eventlog.base import Record
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.texts import is_storable

SPEC = parse_metrics(METRICS)


def record(event: Event, **changes: Any) -> Record:
    payload = json.dumps(json.loads(encode(event)) | changes).encode()
    return Record(FEEDBACK, 0, 7, event.key, payload, NOW)


def reason(result: object) -> DeadLetterReason:
    assert isinstance(result, Unusable)
    return result.reason


def test_a_good_event_passes() -> None:
    interaction = make_interaction()
    assert decode_interaction(record(interaction)) == interaction
    feedback = make_feedback(interaction)
    assert decode_feedback(record(feedback), SPEC) == feedback


@pytest.mark.parametrize(
    "changes",
    [
        {"turn": 2**31},
        {"prompt_ids": [2**31]},
        {"completion_ids": [-1, 1, 1]},
        {"subject": "a\0b"},
        {"tenant": "\0"},
        {"context": "\0"},
        {"kept_mass": [float("nan"), 1.0, 1.0]},
    ],
)
def test_an_interaction_that_no_row_could_hold_is_undecodable(changes: dict[str, Any]) -> None:
    result = decode_interaction(record(make_interaction(), **changes))
    assert reason(result) is DeadLetterReason.UNDECODABLE


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"rater": "\0"}, DeadLetterReason.UNDECODABLE),
        ({"value": {"comment": "a\0"}, "metric": "note"}, DeadLetterReason.UNDECODABLE),
        ({"value": "yes"}, DeadLetterReason.UNDECODABLE),
        ({"schema_version": 2}, DeadLetterReason.UNKNOWN_SCHEMA_VERSION),
        ({"metric": "no\0body"}, DeadLetterReason.UNKNOWN_METRIC),
        ({"value": 3.0}, DeadLetterReason.WRONG_TYPE),
    ],
)
def test_a_feedback_that_cannot_be_used_has_a_reason(
    changes: dict[str, Any], why: DeadLetterReason
) -> None:
    result = decode_feedback(record(make_feedback(), **changes), SPEC)
    assert reason(result) is why
    assert isinstance(result, Unusable)
    assert is_storable(result.detail)


def test_words_are_text_like_any_other() -> None:
    feedback = make_feedback(metric="note", value=Comment(comment="too long"))
    assert decode_feedback(record(feedback), SPEC) == feedback


def test_a_record_under_another_key_may_lie_in_the_wrong_partition() -> None:
    interaction = make_interaction()
    moved = Record(INTERACTIONS, 0, 0, "elsewhere\0", encode(interaction), NOW)
    result = decode_interaction(moved)
    assert reason(result) is DeadLetterReason.UNDECODABLE
    assert isinstance(result, Unusable)
    assert "elsewhere" in result.detail
