"""Implicit signals: what users do instead of saying it, with the declaration that suits each.

A metric that names its signal gets the fields below; whatever else it declares stands. Products
send these signals as feedback, since only they see the cursor, the undo key and the next attempt.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Signal(StrEnum):
    """What the user did; the values are the words of the metrics file."""

    ACCEPT = "accept"
    """Took the output (true) or turned it down (false)."""
    UNDO = "undo"
    """Took it back after it had been taken."""
    EDIT_KEPT = "edit_kept"
    """How much of it was still there at the end of the window."""
    RETRY = "retry"
    """Asked for the same once more."""
    DISSATISFIED = "dissatisfied"
    """The next message of the user was annoyed, or a correction."""


_GOOD: Mapping[str, Any] = {"type": "bool", "direction": "higher", "optional": True}
_BAD: Mapping[str, Any] = {"type": "bool", "direction": "lower", "default": False}
"""Of what is bad, silence is the good answer: it did not happen."""

PRESETS: dict[Signal, dict[str, Any]] = {
    Signal.ACCEPT: {**_GOOD, "window_s": 600.0},
    Signal.UNDO: {**_BAD, "window_s": 900.0, "aggregation": "max"},
    Signal.EDIT_KEPT: {
        "type": "edit",
        "direction": "higher",
        "optional": True,
        "window_s": 1800.0,
        "aggregation": "last",
    },
    Signal.RETRY: {**_BAD, "window_s": 300.0, "aggregation": "max"},
    Signal.DISSATISFIED: {**_BAD, "window_s": 1800.0, "aggregation": "max"},
}
"""What happened once has happened, so `max`; an edit counts as the window found it, so `last`."""

_MEANING = ("type", "direction")
"""Another value would make it another signal."""
_SILENCE = {"default", "optional"}
"""Who declares one of them says what silence means."""


def with_preset(declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration with the fields of its signal, where it has one and they are missing.

    Raises:
        ValueError: no such signal, or a type or direction that is not the signal's.
    """
    if declared.get("signal") is None:
        return dict(declared)
    try:
        preset = PRESETS[Signal(declared["signal"])]
    except ValueError as error:
        known = ", ".join(Signal)
        raise ValueError(f"no signal {declared['signal']!r}; there are {known}") from error
    for name in _MEANING:
        if name in declared and declared[name] != preset[name]:
            raise ValueError(
                f"the signal {declared['signal']} has the {name} {preset[name]}, "
                f"not {declared[name]}; leave `{name}` or `signal` out"
            )
    says_silence = bool(_SILENCE & declared.keys())
    filled = {
        name: value for name, value in preset.items() if not (says_silence and name in _SILENCE)
    }
    return {**filled, **declared}
