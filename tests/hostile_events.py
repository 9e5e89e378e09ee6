"""Events that a stranger could put onto the log: a good one in which one value is a bad one."""

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

HOSTILE: tuple[bytes, ...] = (
    b'"0001-01-01T00:00:00+14:00"',
    b'"9999-12-31T23:59:59-14:00"',
    b'"0001-01-01T00:00:00Z"',
    b'"9999-12-31T23:59:59.999999Z"',
    b"-62135596801",
    b"253402300800",
    b"1e308",
    b"-1e308",
    b"1e999",
    b"-0.0",
    b"5e-324",
    b"NaN",
    b"-Infinity",
    b"9" * 30,
    b"9" * 400,
    b"-" + b"9" * 5_000,
    b"0",
    b"true",
    b"null",
    b'""',
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\xff"',
    b'"' + b"x" * 100_000 + b'"',
    b"[]",
    b"{}",
    b"[NaN]",
    b"[" + b"9" * 400 + b"]",
    b'{"kept_fraction": NaN}',
    b'{"comment": "\\u0000"}',
    b"[" * 150 + b"]" * 150,
    *(b"[" * depth + b"]" * depth for depth in range(880, 1_000, 7)),
    b'{"a":' * 950 + b"1" + b"}" * 950,
    b"[" * 50_000 + b"]" * 50_000,
)
"""Tokens, not all of them JSON."""

_MARK = "put it here"


def mutants(payload: bytes) -> Iterator[bytes]:
    """Yield an event with each of its values replaced by each hostile one."""
    document = json.loads(payload)
    for place in _places(document):
        text = json.dumps(_replaced(document, place), ensure_ascii=False).encode()
        for token in HOSTILE:
            yield text.replace(f'"{_MARK}"'.encode(), token)


@st.composite
def with_strange_bytes(draw: st.DrawFn, payload: bytes) -> bytes:
    """Draw an event in which some bytes are replaced by others, or missing."""
    begin = draw(st.integers(0, len(payload)))
    end = draw(st.integers(begin, min(len(payload), begin + 8)))
    return payload[:begin] + draw(st.binary(max_size=8)) + payload[end:]


def _places(value: Any, *above: Any) -> Iterator[tuple[Any, ...]]:
    if above:
        yield above
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(part, *above, name)


def _replaced(value: Any, place: tuple[Any, ...]) -> Any:
    if not place:
        return _MARK
    changed = value.copy()
    changed[place[0]] = _replaced(value[place[0]], place[1:])
    return changed
