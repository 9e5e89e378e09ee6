"""Which of the valid ways people like.

Users know it, and the old transcripts hold some of it; the verifier and Tidemill never see it.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass

from examples.command_assistant.kinds import KIND_BY_NAME, KINDS, Way
from tidemill.environments.base import Task

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
        """Tell whether a completion is one right call, given in the way that this user likes."""
        try:
            call = json.loads(completion)
        except ValueError:
            return False
        if not isinstance(call, dict) or call.keys() != {"name", "arguments"}:
            return False
        way = self._liked_way(task)
        expected = {**task.reference["slots"], **way.extra}
        return bool(call["name"] == way.tool and call["arguments"] == expected)

    def _liked_way(self, task: Task) -> Way:
        name = self.liked[task.context]
        return next(way for way in KIND_BY_NAME[task.context].ways if way.name == name)


def draw_taste(rng: random.Random) -> Taste:
    """Draw a user's taste: the majority's, with rare exceptions."""
    liked = {}
    for kind in KINDS:
        others = [way.name for way in kind.ways if way.name != MAJORITY[kind.name]]
        is_other = rng.random() < MINORITY_SHARE
        liked[kind.name] = rng.choice(others) if is_other else MAJORITY[kind.name]
    return Taste(liked)
