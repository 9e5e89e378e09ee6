"""Growing text: whole characters, nothing past a stop text, deltas that join to the text."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.policy.engine.text import GrowingText


def decode(ids: Sequence[int]) -> str:
    """One token is one byte."""
    return bytes(ids).decode("utf-8", errors="replace")


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=4), max_size=3))
def test_deltas_join_to_the_text(text: str, stop: list[str]) -> None:
    growing = GrowingText(decode, tuple(stop))
    deltas = []
    for byte in text.encode():
        deltas.append(growing.push(byte))
        if growing.is_stopped:
            break
    deltas.append(growing.finish())
    assert "".join(deltas) == growing.text
    assert text.startswith(growing.text)
    assert not any(word in growing.text for word in stop)
    found = [at for word in stop if (at := text.find(word)) >= 0]
    if not found:
        assert growing.text == text
    else:
        assert growing.is_stopped


def test_half_a_character_is_held_back() -> None:
    growing = GrowingText(decode, ())
    first, second = "é".encode()
    assert growing.push(first) == ""
    assert growing.push(second) == "é"


def test_bytes_that_never_become_a_character_show_at_the_end() -> None:
    growing = GrowingText(decode, ())
    assert growing.push(0xC3) == ""
    assert growing.finish() == "\N{REPLACEMENT CHARACTER}"
    assert growing.finish() == ""


def test_what_could_begin_a_stop_text_is_held_back() -> None:
    growing = GrowingText(decode, ("", "END"))
    assert [growing.push(byte) for byte in b"aENx"] == ["a", "", "", "ENx"]
    assert [growing.push(byte) for byte in b"END!"] == ["", "", "", ""]
    assert growing.is_stopped
    assert (growing.text, growing.finish()) == ("aENx", "")


@pytest.mark.parametrize("count", [1, 3])
def test_finishing_gives_the_held_text(count: int) -> None:
    growing = GrowingText(decode, ("STOP",))
    deltas = [growing.push(byte) for byte in b"STO"[:count]]
    assert deltas == [""] * count
    assert growing.finish() == "STO"[:count]
