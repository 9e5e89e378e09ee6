"""Both clients behind one face that blocks, so that one test proves both."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from tests.factories import make_interaction
from tidemill.client import (
    AsyncFeedbackClient,
    Feedback,
    FeedbackClient,
    Interaction,
    InteractionReceipt,
    ItemResult,
    Options,
    Receipt,
    Rejection,
)

TARGET = make_interaction().interaction_id

FAST = {"backoff_first_s": 0.01, "backoff_max_s": 0.05, "send_after_s": 0.02, "timeout_s": 5.0}


class AnyClient(Protocol):
    """What both clients can do, as a test calls it."""

    rejected: list[Rejection]
    unsent: list[Feedback]

    def send(self, feedback: Feedback) -> Receipt: ...
    def send_interaction(self, interaction: Interaction) -> InteractionReceipt: ...
    def send_batch(self, items: Sequence[Feedback]) -> list[ItemResult]: ...
    def queue(self, feedback: Feedback) -> None: ...
    @property
    def num_queued(self) -> int: ...
    def flush(self, timeout_s: float | None = None) -> bool: ...
    def close(self, timeout_s: float | None = None) -> tuple[Feedback, ...]: ...


MakeClient = Callable[..., AnyClient]


class Blocking(FeedbackClient):
    """The blocking client, which keeps what its callbacks are told."""

    def __init__(self, url: str, key: str | None = None, **options: Any) -> None:
        self.rejected: list[Rejection] = []
        self.unsent: list[Feedback] = []
        super().__init__(
            url,
            key,
            options=Options(**(FAST | options)),
            on_rejected=self.rejected.append,
            on_unsent=self.unsent.extend,
        )


class Awaiting:
    """The client that awaits, on a loop of its own in another thread."""

    def __init__(self, url: str, key: str | None = None, **options: Any) -> None:
        self.rejected: list[Rejection] = []
        self.unsent: list[Feedback] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._client = AsyncFeedbackClient(
            url,
            key,
            options=Options(**(FAST | options)),
            on_rejected=self.rejected.append,
            on_unsent=self.unsent.extend,
        )

    def send(self, feedback: Feedback) -> Receipt:
        return self._await(self._client.send(feedback))

    def send_interaction(self, interaction: Interaction) -> InteractionReceipt:
        return self._await(self._client.send_interaction(interaction))

    def send_batch(self, items: Sequence[Feedback]) -> list[ItemResult]:
        return self._await(self._client.send_batch(items))

    def queue(self, feedback: Feedback) -> None:
        self._await(self._client.queue(feedback))

    @property
    def num_queued(self) -> int:
        return self._client.num_queued

    def flush(self, timeout_s: float | None = None) -> bool:
        return self._await(self._client.flush(timeout_s))

    def close(self, timeout_s: float | None = None) -> tuple[Feedback, ...]:
        return self._await(self._client.close(timeout_s))

    def end(self) -> None:
        """Close, and end the loop."""
        self.close(timeout_s=0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)


def feedback(name: str | None = None, **over: Any) -> Feedback:
    """Make a feedback with an id, or one that has to make its own."""
    given = {} if name is None else {"feedback_id": name}
    return Feedback(
        **{"metric": "accepted", "value": True, "interaction_id": TARGET} | given | over
    )
