"""The record that is put together by hand is the event that the codec would have written."""

import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ingest.api_schemas import FeedbackBody
from ingest.feedback_records import FeedbackEncoder, FeedbackRecord
from tests.factories import NOW
from tidemill.contracts.codec import decode, encode
from tidemill.contracts.events import FeedbackReceived
from tidemill.contracts.ids import FEEDBACK_ID_PATTERN, UUID_PATTERN
from tidemill.subjects import SubjectHasher

HASHER = SubjectHasher(b"0123456789abcdef")

uuids = st.from_regex(re.compile(UUID_PATTERN), fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=zones)
values = (
    st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**53), 2**53)
    | st.fixed_dictionaries({"comment": texts})
    | st.fixed_dictionaries({"demonstration": texts})
    | st.fixed_dictionaries({"kept_fraction": st.floats(0, 1)})
    | st.fixed_dictionaries({"final_text": texts})
)


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """Return any body that the API takes."""
    trajectory = draw(uuids)
    body: dict[str, Any] = {"metric": draw(texts.map(lambda text: text[:128]))}
    if draw(st.booleans()):
        body["interaction_id"] = f"{trajectory}.{draw(uuids)}"
    if "interaction_id" not in body or draw(st.booleans()):
        body["trajectory_id"] = trajectory
    body["value"] = draw(values)
    options = {
        "feedback_id": st.from_regex(re.compile(FEEDBACK_ID_PATTERN), fullmatch=True),
        "source": st.sampled_from(["end_user", "reviewer", "verifier", "judge"]),
        "rater": texts.map(lambda text: text[:256]),
        "at": times.map(datetime.isoformat),
    }
    return body | draw(st.fixed_dictionaries({}, optional=options))


def record_of(body: FeedbackBody, tenant: str, stand_in_id: str | None = None) -> FeedbackRecord:
    encoder = FeedbackEncoder(tenant=tenant, hasher=HASHER, received_at=NOW)
    return encoder.record(body, stand_in_id)


@given(bodies(), texts.map(lambda text: text[:128]))
def test_the_bytes_are_those_of_the_codec(body: dict[str, Any], tenant: str) -> None:
    parsed = FeedbackBody.model_validate_json(json.dumps(body))
    record = record_of(parsed, tenant)
    event = decode(FeedbackReceived, record.record.value)
    assert encode(event) == record.record.value
    assert (event.tenant, event.feedback_id) == record.key == (tenant, record.feedback_id)
    assert (event.key, event.rater) == (record.record.key, record.rater)
    assert (event.metric, event.value) == (parsed.metric, parsed.value)
    assert (event.interaction_id, event.source) == (parsed.interaction_id, parsed.source)
    assert (event.at, event.received_at) == (parsed.at, NOW)
    assert event.body_digest == record.fingerprint


@given(bodies(), bodies())
def test_equal_digests_mean_equal_bodies(first: dict[str, Any], second: dict[str, Any]) -> None:
    one, other = (
        record_of(FeedbackBody.model_validate_json(json.dumps(body)), "t", "same")
        for body in (first, first | {"feedback_id": "other"})
    )
    assert one.fingerprint == other.fingerprint
    changed = record_of(FeedbackBody.model_validate_json(json.dumps(second)), "t")
    said = {name: value for name, value in first.items() if name != "feedback_id"}
    also = {name: value for name, value in second.items() if name != "feedback_id"}
    if said.get("metric") != also.get("metric"):
        assert changed.fingerprint != one.fingerprint
