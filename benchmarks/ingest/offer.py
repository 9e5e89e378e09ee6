"""The open-loop load: requests at fixed moments, whatever becomes of those before.

It reads an `Offer` as JSON and prints an `Offered` as JSON. A moment counts from when a
request was due and not from when a connection was free, or a slow server would be asked less.
"""

import asyncio
import sys
import time
from collections import deque
from typing import cast

import uvloop
from pydantic import BaseModel

from benchmarks.ingest.requests import AnswerBuffer, NotTakenError, feedback_request_on

_ACCEPTED = b"202"


class Offer(BaseModel):
    """What is sent."""

    port: int
    key: str
    per_s: float
    num_connections: int
    interaction_ids: tuple[str, ...]
    """One feedback goes to each, in this order."""


class Offered(BaseModel):
    """When feedback was due, by the clock that all processes of a machine share."""

    due_at: tuple[float, ...]
    """`time.monotonic()` in seconds, in the order of the interactions."""
    most_behind_s: float
    """The longest that a request waited for a free connection."""


class _Connection(asyncio.Protocol):
    """Sends one request at a time."""

    def __init__(self, sender: "_Sender") -> None:
        self._sender = sender
        self._buffer = AnswerBuffer()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of it.
        self.transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sender.fail(f"the server closed a connection: {exc}")

    def data_received(self, data: bytes) -> None:
        whole = self._buffer.take(data)
        if whole is None:
            return
        self._sender.take(whole, self)


class _Sender:
    """All connections, and the requests that wait for one."""

    def __init__(self, num_requests: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.free: list[_Connection] = []
        self.most_behind_s = 0.0
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._num_left = num_requests

    def send(self, due_at: float, request: bytes) -> None:
        """Send a request as soon as a connection is free."""
        self._waiting.append((due_at, request))
        self._send_waiting()

    def take(self, answer: bytes, connection: _Connection) -> None:
        """Count an answer."""
        if answer[9:12] != _ACCEPTED:
            self.fail(f"the server answered {answer[:500]!r}; every feedback must be accepted")
            return
        self._num_left -= 1
        if self._num_left == 0 and not self.over.done():
            self.over.set_result(None)
        self.free.append(connection)
        self._send_waiting()

    def fail(self, problem: str) -> None:
        """End the run."""
        if not self.over.done():
            self.over.set_exception(NotTakenError(problem))

    def _send_waiting(self) -> None:
        while self._waiting and self.free:
            due_at, request = self._waiting.popleft()
            self.most_behind_s = max(self.most_behind_s, time.monotonic() - due_at)
            self.free.pop().transport.write(request)


async def send(offer: Offer) -> Offered:
    """Send everything that is offered, and wait until all of it is answered.

    Raises:
        NotTakenError: an answer other than accepted.
    """
    requests = [feedback_request_on(one, key=offer.key) for one in offer.interaction_ids]
    loop = asyncio.get_running_loop()
    sender = _Sender(len(requests))
    for _ in range(offer.num_connections):
        _, connection = await loop.create_connection(
            lambda: _Connection(sender), "127.0.0.1", offer.port
        )
        sender.free.append(connection)
    due_at = due_times(time.monotonic(), len(requests), per_s=offer.per_s)
    for moment, request in zip(due_at, requests, strict=True):
        wait_s = moment - time.monotonic()
        # A pause of nothing too: answers must be read between the sends.
        await asyncio.sleep(max(wait_s, 0.0))
        if sender.over.done():
            break
        sender.send(moment, request)
    await sender.over
    return Offered(due_at=due_at, most_behind_s=sender.most_behind_s)


def due_times(start: float, number: int, *, per_s: float) -> tuple[float, ...]:
    """Return evenly spaced moments."""
    return tuple(start + index / per_s for index in range(number))


def main() -> int:
    """Return the exit code."""
    offer = Offer.model_validate_json(sys.stdin.read())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            offered = runner.run(send(offer))
        except NotTakenError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    sys.stdout.write(offered.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
