"""The wire format is a promise: one golden file for each event and version, read for ever.

A file here is never edited. A new schema version adds a new file beside the old ones.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tidemill.contracts.codec import MAX_EVENT_BYTES, decode, encode
from tidemill.contracts.events import (
    Comment,
    Edit,
    Event,
    FeedbackReceived,
    InteractionServed,
    PolicyStatusChanged,
)
from tidemill.errors import UndecodableEventError, UnknownSchemaVersionError

GOLDEN = Path(__file__).parent / "golden"
KINDS: dict[str, type[Event]] = {
    "interaction_served": InteractionServed,
    "feedback_received": FeedbackReceived,
    "policy_status_changed": PolicyStatusChanged,
}


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes().strip()


def changed(name: str, **changes: Any) -> bytes:
    return json.dumps(json.loads(golden(name)) | changes).encode()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_every_golden_event_still_reads_and_writes_byte_for_byte(path: Path) -> None:
    kind = KINDS[path.stem.split(".")[0].rstrip("0123456789").removesuffix("_v")]
    payload = path.read_bytes().strip()
    assert encode(decode(kind, payload)) == payload


def test_each_kind_has_a_golden_file() -> None:
    assert {path.stem for path in GOLDEN.glob("*_v1.json")} >= {f"{name}_v1" for name in KINDS}


def test_an_event_of_a_newer_version_is_told_from_a_broken_one() -> None:
    with pytest.raises(UnknownSchemaVersionError, match="schema_version 2"):
        decode(FeedbackReceived, changed("feedback_received_v1", schema_version=2, more="x"))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b"{}",
        b'{"schema_version": "1"}',
        b'{"schema_version": true}',
        b'{"schema_version": 0}',
        b"[" * 100_000,
        b'{"schema_version": 1, "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
        b" " * (MAX_EVENT_BYTES + 1),
        golden("feedback_received_v1")[:-1],
    ],
    ids=lambda payload: f"{payload[:16]!r}",
)
def test_bytes_that_are_no_event_are_undecodable(payload: bytes) -> None:
    with pytest.raises(UndecodableEventError):
        decode(FeedbackReceived, payload)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": float("nan")},
        {"value": "yes"},
        {"value": None},
        {"value": {"comment": ""}},
        {"value": {"kept_fraction": 0.5, "final_text": "both"}},
        {"value": {"kept_fraction": 1.5}},
        {"received_at": "2026-12-01T00:00:00"},
        {"interaction_id": "no-id"},
        {"trajectory_id": "0193e3a0-0000-7000-8000-00000000ffff"},
        {"feedback_id": "two words"},
        {"surprise": 1},
    ],
)
def test_feedback_that_breaks_a_rule_is_undecodable(changes: dict[str, Any]) -> None:
    with pytest.raises(UndecodableEventError):
        decode(FeedbackReceived, changed("feedback_received_v1", **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"behaviour_logprobs": [-0.5]},
        {"behaviour_logprobs": [0.5, -0.1, -0.1]},
        {"behaviour_logprobs": [-1e308, -0.1, -0.1]},
        {"kept_mass": [1.0]},
        {"kept_mass": [0.0, 1.0, 1.0]},
        {"kept_mass": [-0.5, 1.0, 1.0]},
        {"kept_mass": [1.1, 1.0, 1.0]},
        {"kept_mass": [float("nan"), 1.0, 1.0]},
        {"prompt_ids": [-1]},
        {"completion_ids": [1, 2, -1]},
        {"completion_ids": [1, 2, 2**31]},
        {"assignment_probability": 0.0},
        {"trajectory_id": "0193e3a0-0000-7000-8000-00000000ffff"},
        {"newest_policy_version": "v3"},
        {"served_at": "2026-12-01T00:00:00"},
    ],
)
def test_an_interaction_that_breaks_a_rule_is_undecodable(changes: dict[str, Any]) -> None:
    with pytest.raises(UndecodableEventError):
        decode(InteractionServed, changed("interaction_served_v1", **changes))


def test_true_stays_a_boolean_and_one_a_number() -> None:
    assert decode(FeedbackReceived, changed("feedback_received_v1", value=True)).value is True
    one = decode(FeedbackReceived, changed("feedback_received_v1", value=1)).value
    assert one == 1.0
    assert not isinstance(one, bool)


def test_values_in_words_keep_their_kind() -> None:
    comment = decode(FeedbackReceived, changed("feedback_received_v1", value={"comment": "no"}))
    edit = decode(FeedbackReceived, changed("feedback_received_v1", value={"kept_fraction": 0.5}))
    assert comment.value == Comment(comment="no")
    assert edit.value == Edit(kept_fraction=0.5)


def test_log_probs_survive_the_wire_bit_for_bit() -> None:
    values = [-1e-9, -0.1, -123.456789012345]
    payload = changed("interaction_served_v1", behaviour_logprobs=values)
    assert list(decode(InteractionServed, payload).behaviour_logprobs or ()) == values


def test_a_kept_mass_may_pass_one_by_a_rounding() -> None:
    payload = changed("interaction_served_v1", kept_mass=[1.0000001, 1.0, 1e-30])
    assert decode(InteractionServed, payload).kept_mass == (1.0000001, 1.0, 1e-30)


def test_times_are_kept_in_utc() -> None:
    payload = changed("interaction_served_v1", served_at="2026-12-01T14:00:00.500000+02:00")
    assert decode(InteractionServed, payload).served_at.isoformat() == (
        "2026-12-01T12:00:00.500000+00:00"
    )


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kept_fraction": 1.5}, r"FeedbackReceived\.value\.kept_fraction: "),
        ({"comment": ""}, r"FeedbackReceived\.value\.comment: "),
        (float("nan"), "value: Input should be a finite number"),
        ("yes", "true or false, a finite number, .* it is a text"),
    ],
)
def test_the_reason_is_about_the_form_that_was_meant(value: Any, words: str) -> None:
    with pytest.raises(UndecodableEventError, match=words):
        decode(FeedbackReceived, changed("feedback_received_v1", value=value))
