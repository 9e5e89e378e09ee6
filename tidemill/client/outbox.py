"""Feedback that waits to be sent, and what is under way. Pure: the client brings clock and lock.

Whatever is put in comes out exactly once: acknowledged, rejected, or given up at the end.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from tidemill.client.answers import ItemResult, Rejection, Status
from tidemill.client.delivery import Draw, Round, compute_wait_s, pick_batch
from tidemill.client.options import Options
from tidemill.client.records import Feedback
from tidemill.errors import InvalidRecordError, OutboxFullError

_PATIENCE = 3
"""Failures in a row before batches get smaller: an API that is only away needs no smaller ones."""


@dataclass(frozen=True, slots=True)
class _Entry:
    feedback: Feedback
    number: int
    """Grows by one with each entry."""
    queued_at: float


@dataclass(slots=True, kw_only=True)
class Outbox:
    """Ordered, bounded, for one sender at a time; times are seconds of one monotonic clock."""

    options: Options
    draw: Draw
    is_given_up: bool = False
    """It was emptied for good: what is answered from now on is nobody's."""
    _waiting: deque[_Entry] = field(default_factory=deque)
    _under_way: list[_Entry] = field(default_factory=list)
    _num_bytes: int = 0
    _next_number: int = 0
    _hurry_below: int = 0
    """Entries below this number do not wait for company."""
    _num_failures: int = 0
    """In a row."""
    _batch_items: int = field(init=False)
    """Halved while batches fail as a whole: a busy API may have room for a small one only."""
    _not_before: float = float("-inf")
    _must_wait: bool = False
    """The API itself asked for the wait."""
    _num_untold: int = 0
    """Rejections that were handed out and not told yet."""

    def __post_init__(self) -> None:
        self._batch_items = self.options.max_batch_items

    def __len__(self) -> int:
        """Return how many are not settled."""
        return len(self._waiting) + len(self._under_way)

    def has_room(self, feedback: Feedback) -> bool:
        """Tell whether one more fits.

        Raises:
            InvalidRecordError: it could not be sent even alone.
        """
        size, limit = len(feedback.encoded), self.options.max_batch_bytes
        if size >= limit:
            raise InvalidRecordError(f"the feedback has {size} bytes; a request takes {limit}")
        is_small = self._num_bytes + size <= self.options.max_queued_bytes
        return is_small and len(self) < self.options.max_queued

    def add(self, feedback: Feedback, now: float) -> None:
        """Put one in.

        Raises:
            InvalidRecordError: it could not be sent even alone.
            OutboxFullError: there is no room.
        """
        if not self.has_room(feedback):
            raise OutboxFullError(
                f"{len(self)} feedbacks ({self._num_bytes} bytes) wait to be sent; keep this one"
                " and queue it later, or raise max_queued or queue_block_s"
            )
        self._waiting.append(_Entry(feedback, self._next_number, now))
        self._next_number += 1
        self._num_bytes += len(feedback.encoded)

    def compute_wait_s(self, now: float) -> float | None:
        """Return how long until a batch is due: 0 = now, None = nothing waits."""
        if not self._waiting:
            return None
        oldest = self._waiting[0]
        is_hurried = oldest.number < self._hurry_below
        if is_hurried or len(self._waiting) >= self.options.send_after_items:
            return max(0.0, self._not_before - now)
        due_at = oldest.queued_at + self.options.send_after_s
        return max(0.0, due_at - now, self._not_before - now)

    def take(self) -> list[Feedback]:
        """Return the next batch; it is under way until `settle` or `put_back`."""
        first = list(islice(self._waiting, self._batch_items))
        size = pick_batch([len(entry.feedback.encoded) for entry in first], self.options)
        self._under_way = [self._waiting.popleft() for _ in range(size)]
        return [entry.feedback for entry in self._under_way]

    def settle(self, found: Round, now: float) -> list[Rejection]:
        """Take note of what became of the batch; return what was rejected, to be told.

        What is to be sent again stands before all others, in its old order.
        """
        entries, self._under_way = self._under_way, []
        if self.is_given_up:
            return []
        pairs = list(zip(entries, found.results, strict=True))
        again = [entry for entry, one in pairs if one.status is Status.RETRY]
        self._waiting.extendleft(reversed(again))
        self._num_bytes -= sum(
            len(entry.feedback.encoded) for entry, one in pairs if one.status is not Status.RETRY
        )
        self._note(bool(again), found.retry_after_s, now)
        self._resize(has_failed=len(again) == len(entries))
        rejections = [_rejection(entry.feedback, one) for entry, one in pairs if _is_rejected(one)]
        self._num_untold = len(rejections)
        return rejections

    def told(self) -> None:
        """Note that all rejections were told."""
        self._num_untold = 0

    def put_back(self) -> None:
        """Note that the sender stopped, and nothing is known of the batch."""
        self._waiting.extendleft(reversed(self._under_way))
        self._under_way = []

    def hurry(self, now: float) -> int:
        """Let what is inside go now, even in the middle of a backoff; return a mark of it."""
        self._hurry_below = self._next_number
        self._num_failures = 0
        if not self._must_wait:
            # Not at once: whoever hurries in a loop must not flood an API that is down.
            soon = now + self.draw() * self.options.backoff_first_s
            self._not_before = min(self._not_before, soon)
        return self._next_number

    def is_settled(self, mark: int) -> bool:
        """Tell whether all that was inside at the mark is settled, and all rejections told."""
        oldest = [entries[0].number for entries in (self._under_way, self._waiting) if entries]
        return min(oldest, default=mark) >= mark and self._num_untold == 0

    def give_up(self) -> tuple[Feedback, ...]:
        """Empty it for good; return what was never settled, in order."""
        left = [entry.feedback for entry in (*self._under_way, *self._waiting)]
        self._waiting.clear()
        self._under_way = []
        self._num_bytes = 0
        self.is_given_up = True
        return tuple(left)

    def _note(self, has_failed: bool, retry_after_s: float | None, now: float) -> None:
        self._num_failures = self._num_failures + 1 if has_failed else 0
        self._must_wait = has_failed and bool(retry_after_s)
        self._not_before = now
        if has_failed:
            self._not_before += compute_wait_s(
                self.options,
                num_failures=self._num_failures,
                retry_after_s=retry_after_s,
                draw=self.draw,
            )

    def _resize(self, *, has_failed: bool) -> None:
        if not has_failed:
            self._batch_items = min(2 * self._batch_items, self.options.max_batch_items)
        elif self._num_failures >= _PATIENCE:
            self._batch_items = max(1, self._batch_items // 2)


def unknown(items: Sequence[Feedback], why: str) -> Round:
    """Return the round of which nothing is known: all are to be sent again."""
    return Round([ItemResult(item.feedback_id, Status.RETRY, why) for item in items])


def _is_rejected(result: ItemResult) -> bool:
    return result.status is Status.REJECTED


def _rejection(feedback: Feedback, result: ItemResult) -> Rejection:
    return Rejection(feedback, result.reason or "no reason was given", result.problem)
