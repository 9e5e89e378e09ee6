import base64
import json

import pytest

from tests.factories import NOW, VERSION, make_feedback, make_interaction
from tidemill.cli.records import describe_record, record_to_json
from tidemill.contracts.codec import encode
from tidemill.contracts.events import (
    DEAD_LETTERS,
    FEEDBACK,
    INTERACTIONS,
    POLICIES,
    Comment,
    Event,
    PolicyStatusChanged,
)
from tidemill.eventlog.base import Record

CHANGED = PolicyStatusChanged(
    model="tide", tenant="t", policy_version=VERSION, status="champion", reason="won", at=NOW
)


@pytest.mark.parametrize(
    ("topic", "event", "words"),
    [
        (INTERACTIONS, make_interaction(), f"turn 0 {VERSION} champion stop 3 tokens"),
        (FEEDBACK, make_feedback(feedback_id="f"), "f accepted=True by end_user on "),
        (FEEDBACK, make_feedback(value=Comment(comment="secret")), "accepted=Comment by"),
        (POLICIES, CHANGED, f"tide {VERSION} champion: won"),
    ],
)
def test_an_event_is_one_line_without_what_was_said(topic: str, event: Event, words: str) -> None:
    record = Record(topic, 1, 7, event.key, encode(event), NOW)
    line = describe_record(record)
    assert line.startswith("2026-12-01 12:00:00.000000  1/7  ")
    assert words in line
    assert "secret" not in line
    assert "lights on" not in line
    facts = json.loads(json.dumps(record_to_json(record)))
    assert facts["event"] == json.loads(encode(event))
    assert (facts["offset"], facts["key"]) == (7, event.key)


@pytest.mark.parametrize("topic", [FEEDBACK, DEAD_LETTERS])
def test_what_is_no_event_is_said_and_kept(topic: str) -> None:
    record = Record(topic, 0, 0, "k", b"\x1bjunk", NOW)
    assert describe_record(record).endswith("; 5 bytes")
    facts = record_to_json(record)
    assert facts["problem"]
    assert base64.b64decode(facts["value_base64"]) == b"\x1bjunk"
