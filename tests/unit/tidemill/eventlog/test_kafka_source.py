from types import SimpleNamespace
from typing import Any

import pytest

from tests.factories import NOW
from tidemill.eventlog.kafka_source import to_record


def message(**over: Any) -> SimpleNamespace:
    fields = {"topic": "t", "partition": 1, "offset": 7, "key": b"k", "value": b"v"}
    return SimpleNamespace(**(fields | {"timestamp": int(NOW.timestamp() * 1000)} | over))


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"k", "k"), ("Zo\u00eb".encode(), "Zo\u00eb"), (b"\xff\xfek", "\ufffd\ufffdk"), (None, "")],
)
def test_any_key_of_another_producer_becomes_text(key: bytes | None, text: str) -> None:
    record = to_record(message(key=key))
    assert (record.key, record.offset, record.appended_at) == (text, 7, NOW)


def test_a_message_without_a_value_is_an_empty_record() -> None:
    assert to_record(message(value=None)).value == b""
