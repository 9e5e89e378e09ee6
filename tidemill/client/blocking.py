"""The client that blocks, for threads; a thread of its own sends what is queued."""

import atexit
import functools
import logging
import os
import random
import threading
import time
import weakref
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

_JOIN_S = 0.5
"""The sending thread ends at once, unless it waits for an answer; it is a daemon then."""


class FeedbackClient:
    """Sends feedback and interactions; may be used by many threads at once.

    `send`, `send_batch` and `send_interaction` wait for the acknowledgement. `queue` does not: a
    thread sends what is queued, in its order, and goes on until each is acknowledged or rejected,
    or the client is closed; at interpreter exit it is closed for you, also after an exception.
    SIGKILL, `os._exit` and an unhandled SIGTERM lose what is queued: what must survive these goes
    by `send`.

    A process that was forked has an empty outbox and connections of its own; what was queued
    before is sent by the parent. A child that leaves by `os._exit` (as those of `multiprocessing`
    do) calls `close` itself.
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
            on_rejected: is told of queued feedback that can never be taken, by the sending thread;
                it may queue, but not flush or close.
            on_unsent: is told at close of queued feedback that was not acknowledged.

        Raises:
            ConfigurationError: the address or the key cannot be used.
        """
        self._options = options or Options()
        self._http_arguments = http_arguments(base_url, key, self._options)
        self._on_rejected = on_rejected
        self._on_unsent = on_unsent
        self._draw = random.SystemRandom().random
        self._is_closed = False
        self._begin()
        _watch_forks()
        _clients.add(self)

    def send(self, feedback: Feedback) -> Receipt:
        """Send one feedback and wait until it is stored durably.

        Raises:
            RefusedError: it can never be taken.
            UnacknowledgedError: all attempts failed; send it again, as it is.
            ClientClosedError: the client was closed.
        """
        return self._call(deliver_feedback(feedback, self._options, self._draw))

    def send_interaction(self, interaction: Interaction) -> InteractionReceipt:
        """Send one interaction that the product served itself; wait until it is stored durably.

        Raises:
            RefusedError: it can never be taken.
            UnacknowledgedError: all attempts failed; send it again, as it is.
            ClientClosedError: the client was closed.
        """
        return self._call(deliver_interaction(interaction, self._options, self._draw))

    def send_batch(self, items: Sequence[Feedback]) -> list[ItemResult]:
        """Send any number of feedbacks, and return what became of each, in order.

        Nothing that the API answers raises: one bad item never spoils the others.

        Raises:
            ClientClosedError: the client was closed.
        """
        return self._call(deliver_batch(items, self._options, self._draw))

    def queue(self, feedback: Feedback) -> None:
        """Leave a feedback to the sending thread.

        Raises:
            OutboxFullError: there is no room, and none came within `queue_block_s`.
            InvalidRecordError: it is larger than a request may be.
            ClientClosedError: the client was closed.
        """
        deadline = time.monotonic() + self._options.queue_block_s
        with self._changed:
            self._require_open()
            self._require_thread()
            while not self._outbox.has_room(feedback):
                left_s = deadline - time.monotonic()
                if left_s <= 0 or threading.current_thread() is self._thread:
                    # Waiting in the sending thread itself would wait for nobody.
                    break
                self._changed.wait(left_s)
                self._require_open()
            self._outbox.add(feedback, time.monotonic())
            self._changed.notify_all()

    @property
    def num_queued(self) -> int:
        """How much queued feedback is neither acknowledged nor rejected yet."""
        with self._changed:
            return len(self._outbox)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Send now what is queued; tell whether all of it was acknowledged or rejected in time.

        Args:
            timeout_s: how long to wait at most; None = `close_timeout_s`.
        """
        limit_s = self._options.close_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        with self._changed:
            mark = self._outbox.hurry(time.monotonic())
            self._changed.notify_all()
            while not self._outbox.is_settled(mark):
                left_s = deadline - time.monotonic()
                if left_s <= 0 or self._outbox.is_given_up:
                    return False
                self._changed.wait(left_s)
        return True

    def close(self, timeout_s: float | None = None) -> tuple[Feedback, ...]:
        """Flush, end, and return the feedback that was not acknowledged; `on_unsent` is told too.

        It may be stored all the same, if only the answer was lost: send it again, as it is.

        Args:
            timeout_s: how long to flush at most; None = `close_timeout_s`.
        """
        with self._changed:
            if self._is_closed:
                return ()
            self._is_closed = True
        try:
            self.flush(timeout_s)
        finally:
            unsent = self._end()
        return unsent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self) -> None:
        """Set what belongs to one process alone."""
        self._changed = threading.Condition()
        self._outbox = Outbox(options=self._options, draw=self._draw)
        self._thread: threading.Thread | None = None
        self._http: httpx.Client | None = None

    def _end(self) -> tuple[Feedback, ...]:
        atexit.unregister(self.close)
        with self._changed:
            unsent = self._outbox.give_up()
            thread = self._thread
            self._changed.notify_all()
        if unsent:
            self._on_unsent(unsent)
        if thread is not None:
            thread.join(_JOIN_S)
        if thread is None or not thread.is_alive():
            # Else the thread does it, when it has its answer.
            self._disconnect()
        return unsent

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the client was closed; make a new one")

    def _require_thread(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        thread = threading.Thread(target=self._run, name="tidemill-feedback", daemon=True)
        # First, since no thread starts any more once the interpreter ends: it raises then.
        thread.start()
        self._thread = thread
        atexit.unregister(self.close)
        atexit.register(self.close)

    def _run(self) -> None:
        while (batch := self._next_batch()) is not None:
            try:
                found = self._drive(deliver_round(batch))
            except Exception as error:
                # Whatever it is: without this thread, nothing queued would ever be sent.
                _log.exception("a batch could not be sent; it is tried again")
                found = unknown(batch, str(error))
            self._settle(found)
        if self._is_closed:
            self._disconnect()

    def _next_batch(self) -> list[Feedback] | None:
        with self._changed:
            while not self._outbox.is_given_up:
                wait_s = self._outbox.compute_wait_s(time.monotonic())
                if wait_s == 0:
                    return self._outbox.take()
                self._changed.wait(wait_s)
        return None

    def _settle(self, found: Round) -> None:
        with self._changed:
            rejections = self._outbox.settle(found, time.monotonic())
            self._changed.notify_all()
        for rejection in rejections:
            try:
                self._on_rejected(rejection)
            except Exception:
                _log.exception("on_rejected failed for %s", rejection.feedback.feedback_id)
        with self._changed:
            self._outbox.told()
            self._changed.notify_all()

    def _call(self, steps: Steps[T]) -> T:
        self._require_open()
        return self._drive(steps)

    def _drive(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                step = steps.send(self._do(step))
        except StopIteration as end:
            result: T = end.value
            return result

    def _do(self, step: Post | Pause) -> Answer:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return Answer(0)
        headers = {"content-type": step.content_type}
        try:
            return answer_of(self._connect().post(step.path, content=step.body, headers=headers))
        except httpx.HTTPError as error:
            return no_answer(error)
        except RuntimeError:
            # httpx says so when another thread has closed the connections meanwhile.
            self._require_open()
            raise

    def _connect(self) -> httpx.Client:
        with self._changed:
            if self._http is None:
                self._http = httpx.Client(**self._http_arguments)
            return self._http

    def _disconnect(self) -> None:
        if self._http is not None:
            self._http.close()

    def _renew(self) -> None:
        """Begin anew in a forked child: lock, connections and thread are the parent's."""
        self._begin()


_clients: "weakref.WeakSet[FeedbackClient]" = weakref.WeakSet()


@functools.cache
def _watch_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_renew_all)


def _renew_all() -> None:
    for client in list(_clients):
        client._renew()  # noqa: SLF001  these are our own
