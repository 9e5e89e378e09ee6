"""The kinds of request that the assistant serves, and the valid ways to answer each.

A way is one combination of tool and free argument. All ways of a kind are valid; which one people
like is `taste.py`'s business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROOMS = ("kitchen", "office", "bedroom", "hall", "garage", "attic", "bath", "cellar")
DAYS = ("today", "tomorrow", "monday", "tuesday", "thursday", "friday", "sunday")
PEOPLE = ("anna", "ben", "clara", "david", "emma", "felix", "mum", "dad")
STATES = ("late", "home", "ready", "busy", "lost", "fine", "sick", "away")
TOPICS = ("rent", "dentist", "party", "exam", "train", "garden", "taxes", "cake", "flowers")
GENRES = ("jazz", "rock", "folk", "blues", "opera", "soul", "techno", "swing")
DISHES = ("eggs", "pasta", "bread", "rice", "tea", "pizza", "soup", "roast")


@dataclass(frozen=True, slots=True)
class Way:
    """One valid way to answer: a tool, and a value for what the request leaves open."""

    name: str
    tool: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of request; its name is the context of the baseline."""

    name: str
    phrases: tuple[str, ...]
    slots: Mapping[str, tuple[Any, ...]]
    """Values that the request names; the answer must repeat them."""
    ways: tuple[Way, ...]


def _choices(tool: str, argument: str, *values: str) -> tuple[Way, ...]:
    return tuple(Way(value, tool, {argument: value}) for value in values)


KINDS: tuple[Kind, ...] = (
    Kind(
        "light",
        ("dim the {room} light to {level}", "set the {room} lamp to {level}"),
        {"room": ROOMS, "level": tuple(range(10, 100, 10))},
        _choices("light", "mode", "fade", "snap", "step"),
    ),
    Kind(
        "music",
        ("play some {genre} in the {room}", "i want {genre} in the {room}"),
        {"genre": GENRES, "room": ROOMS},
        _choices("play", "volume", "low", "mid", "loud"),
    ),
    Kind(
        "reminder",
        ("remind me about the {topic} {day}", "{day} is the {topic}, remind me"),
        {"topic": TOPICS, "day": DAYS},
        _choices("remind", "via", "push", "mail", "call"),
    ),
    Kind(
        "heating",
        ("heat the {room} to {degrees}", "make it {degrees} degrees in the {room}"),
        {"room": ROOMS, "degrees": tuple(range(17, 26))},
        _choices("heat", "hold", "once", "always"),
    ),
    Kind(
        "timer",
        ("time the {dish} for {minutes} minutes", "{minutes} minutes for the {dish}"),
        {"dish": DISHES, "minutes": (2, 3, 5, 7, 8, 12, 15, 20, 45)},
        _choices("timer", "alert", "chime", "flash", "voice"),
    ),
    Kind(
        "message",
        ("tell {person} that i am {state}", "let {person} know i am {state}"),
        {"person": PEOPLE, "state": STATES},
        (Way("text", "text"), Way("mail", "mail")),
    ),
)

KIND_BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}


def slots_of_tool(tool: str) -> Mapping[str, tuple[Any, ...]]:
    """Return every argument of a tool with its possible values, in the order of its schema.

    Raises:
        KeyError: no kind is answered by that tool.
    """
    for kind in KINDS:
        ways = [way for way in kind.ways if way.tool == tool]
        if ways:
            names = {name for way in ways for name in way.extra}
            return dict(kind.slots) | {
                name: tuple(way.extra[name] for way in ways) for name in sorted(names)
            }
    raise KeyError(tool)
