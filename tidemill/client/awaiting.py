"""The client that awaits, for one event loop; a task of its own sends what is queued."""

import asyncio
import atexit
import logging
import random
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

import httpx

from tidemill.client.answers import Answer, InteractionReceipt, ItemResult, Receipt, Rejection
from tidemill.client.delivery import (
    Pause,
    Post,
    Round,
    Steps,
    deliver_batch,
    deliver_feedback,
    deliver_interaction,
    deliver_round,
)
from tidemill.client.options import Options
from tidemill.client.outbox import Outbox, unknown
from tidemill.client.records import Feedback, Interaction
from tidemill.client.transport import (
    answer_of,
    http_arguments,
    log_rejection,
    log_unsent,
    no_answer,
)
from tidemill.errors import ClientClosedError

_log = logging.getLogger("tidemill.client")

T = TypeVar("T")


class AsyncFeedbackClient:
    """Sends feedback and interactions; belongs to one event loop, not to several threads or forks.

    The methods are those of `FeedbackClient`. Its loop is gone when the interpreter exits, so
    nothing can be sent then: close it, best by `async with`. What is queued in a client that nobody
    closed is told to `on_unsent` at exit.
    """

    def __init__(
        self,
        base_url: str,
        key: str | None = None,
        *,
        options: Options | None = None,
        on_rejected: Callable[[Rejection], None] = log_rejection,
        on_unsent: Callable[[Sequence[Feedback]], None] = log_unsent,
    ) -> None:
        """Prepare; nothing is connected yet.

        Args:
            base_url: where the feedback API is.
            key: with the scopes `feedback:write` or `interactions:write`; None = it asks for none.
            options: times, attempts and limits.
            on_rejected: is told of queued feedback that can never be taken, on the event loop.
            on_unsent: is told at close of queued feedback that was not acknowledged.

        Raises:
            ConfigurationError: the address or the key cannot be used.
        """
        self._options = options or Options()
        self._http = httpx.AsyncClient(**http_arguments(base_url, key, self._options))
        self._on_rejected = on_rejected
        self._on_unsent = on_unsent
        self._draw = random.SystemRandom().random
        self._outbox = Outbox(options=self._options, draw=self._draw)
        self._is_closed = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def send(self, feedback: Feedback) -> Receipt:
        """Send one feedback and wait until it is stored durably.

        Raises:
            RefusedError: it can never be taken.
            UnacknowledgedError: all attempts failed; send it again, as it is.
            ClientClosedError: the client was closed.
        """
        return await self._call(deliver_feedback(feedback, self._options, self._draw))

    async def send_interaction(self, interaction: Interaction) -> InteractionReceipt:
        """Send one interaction that the product served itself; wait until it is stored durably.

        Raises:
            RefusedError: it can never be taken.
            UnacknowledgedError: all attempts failed; send it again, as it is.
            ClientClosedError: the client was closed.
        """
        return await self._call(deliver_interaction(interaction, self._options, self._draw))

    async def send_batch(self, items: Sequence[Feedback]) -> list[ItemResult]:
        """Send any number of feedbacks, and return what became of each, in order.

        Nothing that the API answers raises: one bad item never spoils the others.

        Raises:
            ClientClosedError: the client was closed.
        """
        return await self._call(deliver_batch(items, self._options, self._draw))

    async def queue(self, feedback: Feedback) -> None:
        """Leave a feedback to the sending task; waits only for room, at most `queue_block_s`.

        Raises:
            OutboxFullError: there is no room, and none came within `queue_block_s`.
            InvalidRecordError: it is larger than a request may be.
            ClientClosedError: the client was closed.
        """
        deadline = time.monotonic() + self._options.queue_block_s
        self._require_open()
        self._require_task()
        while not self._outbox.has_room(feedback):
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                break
            await self._wait(left_s)
            self._require_open()
        self._outbox.add(feedback, time.monotonic())
        self._notify()

    @property
    def num_queued(self) -> int:
        """How much queued feedback is neither acknowledged nor rejected yet."""
        return len(self._outbox)

    async def flush(self, timeout_s: float | None = None) -> bool:
        """Send now what is queued; tell whether all of it was acknowledged or rejected in time.

        Args:
            timeout_s: how long to wait at most; None = `close_timeout_s`.
        """
        limit_s = self._options.close_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        mark = self._outbox.hurry(time.monotonic())
        self._notify()
        while not self._outbox.is_settled(mark):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._outbox.is_given_up:
                return False
            await self._wait(left_s)
        return True

    async def close(self, timeout_s: float | None = None) -> tuple[Feedback, ...]:
        """Flush, end, and return the feedback that was not acknowledged; `on_unsent` is told too.

        It may be stored all the same, if only the answer was lost: send it again, as it is.

        Args:
            timeout_s: how long to flush at most; None = `close_timeout_s`.
        """
        if self._is_closed:
            return ()
        self._is_closed = True
        try:
            await self.flush(timeout_s)
        finally:
            unsent = self._give_up()
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            await self._http.aclose()
        return unsent

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _give_up(self) -> tuple[Feedback, ...]:
        self._is_closed = True
        atexit.unregister(self._give_up)
        unsent = self._outbox.give_up()
        if unsent:
            self._on_unsent(unsent)
        return unsent

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client was closed; make a new one")

    def _require_task(self) -> None:
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.create_task(self._run(), name="tidemill-feedback")
        atexit.unregister(self._give_up)
        atexit.register(self._give_up)

    async def _run(self) -> None:
        try:
            while True:
                batch = await self._next_batch()
                self._settle(await self._send_round(batch))
        finally:
            # Cancelled in the middle of a request: what is known of the batch is nothing.
            self._outbox.put_back()

    async def _next_batch(self) -> list[Feedback]:
        while True:
            wait_s = self._outbox.compute_wait_s(time.monotonic())
            if wait_s == 0:
                return self._outbox.take()
            await self._wait(wait_s)

    async def _send_round(self, batch: list[Feedback]) -> Round:
        try:
            return await self._drive(deliver_round(batch))
        except Exception as error:
            # Whatever it is: without this task, nothing queued would ever be sent.
            _log.exception("a batch could not be sent; it is tried again")
            return unknown(batch, str(error))

    def _settle(self, found: Round) -> None:
        for rejection in self._outbox.settle(found, time.monotonic()):
            try:
                self._on_rejected(rejection)
            except Exception:
                _log.exception("on_rejected failed for %s", rejection.feedback.feedback_id)
        self._outbox.told()
        self._notify()

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait until something changes in the outbox, or for so long."""
        changed = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            return

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _call(self, steps: Steps[T]) -> T:
        self._require_open()
        return await self._drive(steps)

    async def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._do(step))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _do(self, step: Post | Pause) -> Answer:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return Answer(0)
        headers = {"content-type": step.content_type}
        try:
            return answer_of(await self._http.post(step.path, content=step.body, headers=headers))
        except httpx.HTTPError as error:
            return no_answer(error)
        except RuntimeError:
            # httpx says so when the client was closed meanwhile.
            self._require_open()
            raise
