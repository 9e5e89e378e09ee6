"""Which of the valid ways people like. Users know it, and the old transcripts hold some of it; the verifier
and Tidemill never see it."""

import random
from collections.abc import Mapping
from dataclasses import dataclass

from examples.command_assistant.kinds import KINDS
from examples.command_assistant.verifier import way_of
from tidemill.environments.base import Task
from tidemill.policy.tool_calls import parse_tool_calls

MAJORITY: Mapping[str, str] = {
    "light": "fade",
    "music": "mid",
    "reminder": "push",
    "heating": "always",
    "timer": "voice",
    "message": "text",
}
"""The way that most people like, for each kind of request."""

MINORITY_SHARE = 0.04
"""How often, for each kind, a user likes another way than most."""


@dataclass(frozen=True, slots=True)
class Taste:
    """The way that one user likes, for each kind of request."""

    liked: Mapping[str, str]

    def accepts(self, task: Task, completion: str) -> bool:
        """Tell whether the answer is valid and given in the way that this user likes."""
        parsed = parse_tool_calls(completion, task.tools)
        if len(parsed.tool_calls) != 1 or parsed.text_without_calls:
            return False
        way = way_of(task, parsed.tool_calls[0])
        return way is not None and way.name == self.liked[task.context]


def draw_taste(rng: random.Random) -> Taste:
    """Draw a user's taste: the majority's, with rare exceptions."""
    liked = {}
    for kind in KINDS:
        others = [way.name for way in kind.ways if way.name != MAJORITY[kind.name]]
        is_other = rng.random() < MINORITY_SHARE
        liked[kind.name] = rng.choice(others) if is_other else MAJORITY[kind.name]
    return Taste(liked)
