"""What the senders send: interactions and feedback, early, repeated, unknown, in conflict."""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.factories import VERSION

Body = dict[str, Any]

METRICS = """\
[metrics.accepted]
type = "bool"
window_s = 4
default = false

[metrics.stars]
type = "float"
range = [1, 5]
window_s = 2
optional = true
aggregation = "mean"

[metrics.note]
type = "comment"
window_s = 4

[metrics.solved]
type = "bool"
level = "trajectory"
window_s = 4
optional = true
"""

FEEDBACK, INTERACTIONS = "feedback", "interactions"

EARLY = 0.1
REPEATED = 0.05
IN_CONFLICT = 0.02
UNKNOWN = 0.02
"""Feedback on an interaction that never comes."""
ONCE = 0.05
"""Requests that nobody repeats, whatever the answer: their feedback may be absent."""
_MAX_BATCH = 100
_SKEW_S = 3600.0


@dataclass(frozen=True, slots=True)
class Request:
    """One or many records of a kind, sent together."""

    kind: str
    bodies: tuple[Body, ...]
    is_once: bool = False
    """Whether it is sent a single time."""
    is_in_conflict: bool = False
    """Whether the ids stand for other bodies already."""


def requests(rng: random.Random, *, num_feedback: int, prefix: str) -> Iterator[Request]:
    """Yield what one sender sends, in its order, until so many feedback ids were sent."""
    number = 0
    while number < num_feedback:
        served = [one for _ in range(rng.randint(1, 20)) for one in _conversation(rng)]
        feedback = [
            _feedback(rng, _target(rng, one), f"{prefix}-{number + at}")
            for at, one in enumerate(rng.choices(served, k=4 * len(served)))
        ][: num_feedback - number]
        number += len(feedback)
        yield from _round(rng, served, feedback)


def _round(rng: random.Random, served: list[Body], feedback: list[Body]) -> Iterator[Request]:
    early = _some(rng, feedback, EARLY)
    names = {one["feedback_id"] for one in early}
    yield from _batches(rng, FEEDBACK, early)
    yield from _batches(rng, INTERACTIONS, served + _some(rng, served, REPEATED))
    rest = [one for one in feedback if one["feedback_id"] not in names]
    repeated = _some(rng, feedback, REPEATED)
    for request in _batches(rng, FEEDBACK, rest + repeated):
        yield Request(FEEDBACK, request.bodies, is_once=rng.random() < ONCE)
    for one in _some(rng, early, IN_CONFLICT / EARLY):
        yield Request(FEEDBACK, (one | _value(rng, one["metric"]),), is_in_conflict=True)


def _conversation(rng: random.Random) -> list[Body]:
    trajectory = _uuid(rng)
    return [_interaction(rng, trajectory, turn) for turn in range(rng.randint(1, 3))]


def _interaction(rng: random.Random, trajectory: str, turn: int) -> Body:
    tokens = [rng.randrange(50) for _ in range(rng.randint(1, 12))]
    return {
        "interaction_id": f"{trajectory}.{_uuid(rng)}",
        "turn": turn,
        "policy_version": VERSION,
        "subject": f"user-{rng.randrange(1000)}",
        "consent": rng.random() < 0.95,
        "content": {"messages": [], "completion": f"lights {rng.random()}"},
        "prompt_ids": [1, 2, 3],
        "completion_ids": tokens,
        "behaviour_logprobs": [-0.5] * len(tokens),
        "sampling": {"temperature": 1.0, "max_tokens": 16},
        "served_at": _moment(rng),
    }


def _target(rng: random.Random, served: Body) -> Body:
    chance = rng.random()
    if chance < UNKNOWN:
        return {"interaction_id": f"{_uuid(rng)}.{_uuid(rng)}"}
    if chance < 0.1:
        return {"trajectory_id": served["interaction_id"].partition(".")[0]}
    return {"interaction_id": served["interaction_id"]}


def _feedback(rng: random.Random, target: Body, feedback_id: str) -> Body:
    is_whole = "trajectory_id" in target
    metric = "solved" if is_whole else rng.choice(("accepted", "accepted", "stars", "note"))
    return (
        {"feedback_id": feedback_id, "metric": metric}
        | target
        | _value(rng, metric)
        | {"rater": f"rater-{rng.randrange(3)}", "at": rng.choice((None, _moment(rng)))}
    )


def _value(rng: random.Random, metric: str) -> Body:
    if metric == "stars":
        return {"value": rng.uniform(1, 5)}
    if metric == "note":
        return {"value": {"comment": f"zu lang {rng.random()}"}}
    return {"value": rng.random() < 0.5}


def _batches(rng: random.Random, kind: str, bodies: list[Body]) -> Iterator[Request]:
    left = bodies.copy()
    while left:
        size = 1 if rng.random() < 0.2 else rng.randint(2, _MAX_BATCH)
        yield Request(kind, tuple(left[:size]))
        left = left[size:]


def _some(rng: random.Random, bodies: list[Body], share: float) -> list[Body]:
    return [one for one in bodies if rng.random() < share]


def _moment(rng: random.Random) -> str:
    # Producers whose clocks are an hour off in either direction.
    return (datetime.now(UTC) + timedelta(seconds=rng.uniform(-_SKEW_S, _SKEW_S))).isoformat()


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
