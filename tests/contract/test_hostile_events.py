"""Whatever lies on the log, reading it gives an event or the declared error, never another one."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.contract.test_events import KINDS, changed, golden
from tests.hostile_events import mutants, with_strange_bytes
from tidemill.contracts.codec import decode
from tidemill.contracts.events import Event, FeedbackReceived, InteractionServed
from tidemill.errors import ContractError, UndecodableEventError

GOLDEN = {kind: golden(f"{name}_v1") for name, kind in KINDS.items()}


def read(kind: type[Event], payload: bytes) -> Event | None:
    try:
        return decode(kind, payload)
    except ContractError:
        return None


@pytest.mark.parametrize("kind", KINDS.values())
def test_a_mutated_event_is_read_or_refused(kind: type[Event]) -> None:
    results = [read(kind, payload) for payload in mutants(GOLDEN[kind])]
    assert any(results)
    assert results.count(None) > len(results) / 2


@given(st.sampled_from(list(KINDS.values())), st.binary())
@example(FeedbackReceived, b'{"schema_version":' + b"[" * 985 + b"]" * 985 + b"}")
def test_any_bytes_are_read_or_refused(kind: type[Event], payload: bytes) -> None:
    assert read(kind, payload) is None


@given(st.sampled_from(list(KINDS.values())), st.data())
@settings(max_examples=300)
def test_an_event_with_strange_bytes_in_it_is_read_or_refused(
    kind: type[Event], data: st.DataObject
) -> None:
    event = read(kind, data.draw(with_strange_bytes(GOLDEN[kind])))
    assert event is None or isinstance(event, kind)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_that_utc_cannot_tell_is_undecodable(time: str) -> None:
    with pytest.raises(UndecodableEventError, match="years 1 to 9999"):
        decode(FeedbackReceived, changed("feedback_received_v1", at=time))
    with pytest.raises(UndecodableEventError, match="years 1 to 9999"):
        decode(InteractionServed, changed("interaction_served_v1", served_at=time))
