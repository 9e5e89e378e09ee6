"""From the event loop to the log and back: what came in the same turn of the loop goes together.

A hand-over to the thread of a log, and back, costs more than the check of a feedback; so many
requests share one, as their records share a commit behind it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice

from tidemill.errors import EventLogError
from tidemill.eventlog.base import Appended, EventSink, NewRecord, Position


@dataclass(frozen=True, slots=True)
class _Request:
    records: Sequence[NewRecord]
    stored: "asyncio.Future[list[bool]]"
    deadline_s: float


@dataclass(slots=True)
class Appends:
    """Used on the event loop of one process."""

    sink: EventSink | None = None
    """None = the log cannot be reached."""
    _gathered: dict[str, list[_Request]] = field(default_factory=dict, init=False)
    """By topic."""

    async def append(
        self, topic: str, records: Sequence[NewRecord], deadline_s: float
    ) -> list[bool]:
        """Append records of one topic, and tell of each whether it is durable; never raises.

        Args:
            topic: its name.
            records: in their order.
            deadline_s: on the loop's clock. Without an acknowledgement by then, what still waits
                for its turn is given up for good, with all that was handed over together with it.

        Returns:
            False = not stored, as far as is known.
        """
        loop = asyncio.get_running_loop()
        request = _Request(records, loop.create_future(), deadline_s)
        if not self._gathered:
            loop.call_soon(self._hand_over, loop)
        self._gathered.setdefault(topic, []).append(request)
        return await request.stored

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered, self._gathered = self._gathered, {}
        for topic, requests in gathered.items():
            records = [record for request in requests for record in request.records]
            try:
                if self.sink is None:
                    raise EventLogError("the log cannot be reached")
                future = self.sink.append_all(topic, records)
            except EventLogError:
                _settle(requests, [False] * len(records))
            else:
                self._wait(loop, future, requests)

    def _wait(
        self,
        loop: asyncio.AbstractEventLoop,
        future: Future[list[Appended]],
        requests: list[_Request],
    ) -> None:
        def give_up() -> None:
            future.cancel()
            _settle(requests, [False] * sum(len(request.records) for request in requests))

        def settle() -> None:
            timer.cancel()
            if not future.cancelled():
                _settle(requests, [isinstance(one, Position) for one in future.result()])

        timer = loop.call_at(min(request.deadline_s for request in requests), give_up)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(settle))


def _settle(requests: Sequence[_Request], stored: Sequence[bool]) -> None:
    left = iter(stored)
    for request in requests:
        mine = list(islice(left, len(request.records)))
        # Done already: its caller went away, or the time was up.
        if not request.stored.done():
            request.stored.set_result(mine)
