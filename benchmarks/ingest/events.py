"""What a worker is given to join: events of the size and order that products send. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tidemill.contracts.codec import encode
from tidemill.contracts.events import (
    Arm,
    Content,
    Event,
    FeedbackReceived,
    FinishReason,
    InteractionServed,
    Sampling,
)
from tidemill.contracts.ids import new_feedback_id, new_interaction_id, new_trajectory_id
from tidemill.eventlog.base import NewRecord

_NUM_PROMPT_IDS, _NUM_COMPLETION_IDS = 90, 40
_VOCABULARY = 50_000
_MESSAGE = "Show me every file below this folder that has changed since last week. " * 4
_COMPLETION = "find . -type f -newermt '1 week ago' -print | sort " * 4
_VERSION = "v1-0123456789ab"
_FIRST_EVERY = 10
"""Of every so many interactions one comes after its feedback."""
_REPEAT_EVERY = 100
"""Every so many records one is sent again."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Records of both topics, each in its order, and how many rows they come to."""

    interactions: list[NewRecord]
    feedback: list[NewRecord]
    num_pairs: int

    @property
    def num_records(self) -> int:
        """Everything that a worker reads."""
        return len(self.interactions) + len(self.feedback)

    @property
    def num_repeats(self) -> int:
        """Records beyond the first of their id."""
        return self.num_records - 2 * self.num_pairs


def make_stream(num_pairs: int, *, seed: int) -> Stream:
    """Return interactions and one feedback on each.

    A tenth of the interactions come when all feedback has gone by at the latest; a hundredth of
    all records come twice.
    """
    dice = random.Random(seed)  # noqa: S311  no secret
    served = [make_interaction(dice) for _ in range(num_pairs)]
    in_time = [one for number, one in enumerate(served) if number % _FIRST_EVERY]
    after = [one for number, one in enumerate(served) if number % _FIRST_EVERY == 0]
    return Stream(
        interactions=_repeated([to_record(one) for one in in_time + after]),
        feedback=_repeated([to_record(make_feedback(one, dice)) for one in served]),
        num_pairs=num_pairs,
    )


def make_interaction(dice: random.Random) -> InteractionServed:
    """Return an interaction of about 2.9 KB, with ids and log-probs as a model makes them."""
    trajectory = new_trajectory_id()
    now = datetime.now(UTC)
    return InteractionServed(
        interaction_id=new_interaction_id(trajectory),
        trajectory_id=trajectory,
        turn=0,
        tenant="default",
        model="tide",
        subject=f"{dice.getrandbits(128):032x}",
        consent_train=True,
        oldest_policy_version=_VERSION,
        newest_policy_version=_VERSION,
        arm=Arm.CHAMPION,
        assignment_probability=0.9,
        content=Content(
            messages=({"role": "user", "content": _MESSAGE},),
            completion=_COMPLETION,
        ),
        context="shell",
        prompt_ids=make_ids(dice, _NUM_PROMPT_IDS),
        completion_ids=make_ids(dice, _NUM_COMPLETION_IDS),
        behaviour_logprobs=make_logprobs(dice, _NUM_COMPLETION_IDS),
        sampling=Sampling(temperature=1.0, max_tokens=256),
        finish_reason=FinishReason.STOP,
        latency_ms=dice.uniform(50, 900),
        requested_at=now,
        served_at=now,
    )


def make_ids(dice: random.Random, number: int) -> tuple[int, ...]:
    """Return token ids of a vocabulary of 50,000."""
    return tuple(dice.randrange(_VOCABULARY) for _ in range(number))


def make_logprobs(dice: random.Random, number: int) -> tuple[float, ...]:
    """Return log-probs, most of them near 0, with all their digits."""
    return tuple(-dice.expovariate(2.0) for _ in range(number))


def make_feedback(on: InteractionServed, dice: random.Random) -> FeedbackReceived:
    """Return an end user's feedback on an interaction, as the API writes it."""
    return make_feedback_on(on.interaction_id, on.trajectory_id, dice)


def make_feedback_on(
    interaction_id: str, trajectory_id: str, dice: random.Random
) -> FeedbackReceived:
    """Return feedback on an interaction of which only the ids are at hand."""
    return FeedbackReceived(
        feedback_id=new_feedback_id(),
        tenant="default",
        interaction_id=interaction_id,
        trajectory_id=trajectory_id,
        metric="accepted",
        value=dice.random() < 0.7,
        rater=f"{dice.getrandbits(128):032x}",
        received_at=datetime.now(UTC),
        body_digest=f"{dice.getrandbits(256):064x}",
    )


def to_record(event: Event) -> NewRecord:
    """Return an event as the log takes it."""
    return NewRecord(event.key, encode(event))


def _repeated(records: Sequence[NewRecord]) -> list[NewRecord]:
    found: list[NewRecord] = []
    for number, record in enumerate(records):
        found.append(record)
        if number % _REPEAT_EVERY == 0:
            # Half a hundred later: its first copy may be in a batch of before.
            found.append(records[max(0, number - _REPEAT_EVERY // 2)])
    return found
