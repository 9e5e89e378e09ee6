"""How a record comes to its acknowledgement: attempts, waits, batches. Pure.

Each generator yields what to do and is sent the answer, so the client that blocks and the one that
does not share every decision.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tidemill.client.answers import (
    Answer,
    InteractionReceipt,
    ItemResult,
    Receipt,
    Status,
    read_items,
    read_status,
)
from tidemill.client.options import Options
from tidemill.client.records import Feedback, Interaction
from tidemill.errors import RefusedError, UnacknowledgedError

JSON = "application/json"
NDJSON = "application/x-ndjson"

Draw = Callable[[], float]
"""Returns a random number in [0, 1)."""


@dataclass(frozen=True, slots=True)
class Post:
    """Send a body; the answer is sent back into the generator."""

    path: str
    body: bytes
    content_type: str = JSON


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


T = TypeVar("T")
Steps = Generator[Post | Pause, Answer, T]


@dataclass(frozen=True, slots=True)
class Round:
    """What one attempt made of a batch."""

    results: list[ItemResult]
    """One for each item, in order."""
    retry_after_s: float | None = None
    """How long the API asked to wait."""


def compute_wait_s(
    options: Options, *, num_failures: int, retry_after_s: float | None, draw: Draw
) -> float:
    """Return the wait after so many failures in a row: what the API asked for, and full jitter."""
    # 2^30 is far beyond any limit and still a float.
    doubled = options.backoff_first_s * 2.0 ** min(num_failures - 1, 30)
    asked = min(retry_after_s or 0.0, options.retry_after_max_s)
    return asked + draw() * min(doubled, options.backoff_max_s)


def deliver_feedback(feedback: Feedback, options: Options, draw: Draw) -> Steps[Receipt]:
    """Send one feedback until it is acknowledged.

    Raises:
        RefusedError: it can never be taken.
        UnacknowledgedError: all attempts failed.
    """
    one = feedback.feedback_id
    post = Post("/v1/feedback", feedback.encoded)
    status = yield from _deliver(post, {"feedback_id": one}, options, draw)
    return Receipt(one, status)


def deliver_interaction(
    interaction: Interaction, options: Options, draw: Draw
) -> Steps[InteractionReceipt]:
    """Send one interaction until it is acknowledged.

    Raises:
        RefusedError: it can never be taken.
        UnacknowledgedError: all attempts failed.
    """
    ids = {
        "interaction_id": str(interaction.interaction_id),
        "trajectory_id": str(interaction.trajectory_id),
    }
    post = Post("/v1/interactions", interaction.encoded)
    status = yield from _deliver(post, ids, options, draw)
    return InteractionReceipt(ids["interaction_id"], ids["trajectory_id"], status)


def deliver_batch(
    items: Sequence[Feedback], options: Options, draw: Draw
) -> Steps[list[ItemResult]]:
    """Send many feedbacks, each until it is acknowledged or rejected; return what became of each.

    What is still not acknowledged after all attempts has the status `retry`.
    """
    results: dict[int, ItemResult] = {}
    left = list(range(len(items)))
    for attempt in range(1, options.attempts + 1):
        wait_s = 0.0
        for size in _portions([items[at] for at in left], options):
            portion, left = left[:size], left[size:]
            found = yield from deliver_round([items[at] for at in portion])
            results |= dict(zip(portion, found.results, strict=True))
            if any(one.status is Status.RETRY for one in found.results):
                asked_s = found.retry_after_s
                one_s = compute_wait_s(
                    options, num_failures=attempt, retry_after_s=asked_s, draw=draw
                )
                wait_s = max(wait_s, one_s)
        left = [at for at, one in sorted(results.items()) if one.status is Status.RETRY]
        if not left:
            break
        if attempt < options.attempts:
            yield Pause(wait_s)
    return [results[at] for at in range(len(items))]


def deliver_round(items: Sequence[Feedback]) -> Steps[Round]:
    """Send a batch once; where it is refused as a whole, its halves, down to the one at fault."""
    answer = yield Post("/v1/feedback:batch", b"\n".join(one.encoded for one in items), NDJSON)
    if answer.is_too_much and len(items) > 1:
        middle = len(items) // 2
        first = yield from deliver_round(items[:middle])
        second = yield from deliver_round(items[middle:])
        asked = [one.retry_after_s for one in (first, second) if one.retry_after_s is not None]
        return Round(first.results + second.results, max(asked, default=None))
    results = read_items(answer, items)
    if results is None:
        results = [_as_a_whole(item, answer) for item in items]
    return Round(results, answer.retry_after_s)


def pick_batch(sizes: Sequence[int], options: Options) -> int:
    """Return how many of the first records, by their bytes, fit one request; at least 1."""
    total = 0
    for number, size in enumerate(sizes):
        # With the end of its line.
        total += size + 1
        if number and (number >= options.max_batch_items or total > options.max_batch_bytes):
            return number
    return len(sizes)


def _deliver(post: Post, ids: dict[str, str], options: Options, draw: Draw) -> Steps[Status]:
    answer = Answer(0)
    for attempt in range(1, options.attempts + 1):
        answer = yield post
        status = read_status(answer, **ids)
        if status is not None:
            return status
        problem = answer.problem()
        if problem is not None and not _may_retry(answer):
            raise RefusedError(replace(problem, ids=ids))
        if attempt < options.attempts:
            asked_s = answer.retry_after_s
            yield Pause(
                compute_wait_s(options, num_failures=attempt, retry_after_s=asked_s, draw=draw)
            )
    named = ", ".join(f"{name} {one}" for name, one in ids.items())
    raise UnacknowledgedError(
        f"{named}: {options.attempts} attempts failed, the last: {answer};"
        " send it again with the same id",
        problem=answer.problem(),
    )


def _may_retry(answer: Answer) -> bool:
    # A 2xx of another form is a proxy's or a torn one: it acknowledges nothing.
    return answer.is_later or 200 <= answer.status < 300


def _as_a_whole(item: Feedback, answer: Answer) -> ItemResult:
    status = Status.RETRY if _may_retry(answer) else Status.REJECTED
    return ItemResult(item.feedback_id, status, str(answer), answer.problem())


def _portions(items: Sequence[Feedback], options: Options) -> list[int]:
    sizes = [len(item.encoded) for item in items]
    portions = []
    while sizes:
        portions.append(pick_batch(sizes, options))
        sizes = sizes[portions[-1] :]
    return portions
