"""The load generator: raw connections with one request at a time each, in a process of its own.

Its one argument is a `Load` as JSON; it prints an `Answered` as JSON.
"""

import asyncio
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import cast

import uvloop
from pydantic import BaseModel

from benchmarks.figures import percentile
from benchmarks.ingest.apart import ask
from benchmarks.ingest.requests import (
    AnswerBuffer,
    NotTakenError,
    assessment_requests,
    feedback_requests,
)

_PATIENCE_S = 60.0


class Load(BaseModel):
    """What is sent, where to and how long."""

    port: int
    key: str
    """Of the product's API; nobody else reads it."""
    num_connections: int
    seconds: float
    warm_up_s: float = 0.5
    """Sent before, and not counted."""
    num_items: int = 1
    """Feedbacks in one request; more than one go as NDJSON to the batch route."""
    traces: tuple[str, ...] = ()
    """Of an MLflow: feedback goes to these, by its own API; empty = to the product."""


class Answered(BaseModel):
    """What came back."""

    per_s: float
    """Feedbacks acknowledged a second."""
    p50_ms: float
    p99_ms: float
    num_requests: int


class _Connection(asyncio.Protocol):
    """One connection that sends the next request when the last one is answered."""

    def __init__(self, runner: "_Runner") -> None:
        self._runner = runner
        self._buffer = AnswerBuffer()
        self._sent_at = 0.0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of it.
        self._transport = cast(asyncio.WriteTransport, transport)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(NotTakenError(f"the server closed a connection: {exc}"))

    def data_received(self, data: bytes) -> None:
        whole = self._buffer.take(data)
        if whole is None:
            return
        now = time.perf_counter()
        problem = self._runner.count(whole, now - self._sent_at)
        if problem is not None:
            self.over.set_exception(NotTakenError(problem))
        elif now < self._runner.until:
            self._send()
        else:
            self.over.set_result(None)
            self._transport.close()

    def _send(self) -> None:
        request = next(self._runner.requests)
        self._sent_at = time.perf_counter()
        self._transport.write(request)


class _Runner:
    """All connections of a run, and what they saw."""

    def __init__(self, load: Load, requests: Iterator[bytes]) -> None:
        self.requests = requests
        self.until = 0.0
        self.latencies_s = array("d")
        self.statuses: Counter[bytes] = Counter()
        self._load = load
        self._good = (b"200",) if load.traces else (b"202", b"207")

    async def run(self, seconds: float) -> float:
        """Send for so long; return how long it took until the last answer."""
        loop = asyncio.get_running_loop()
        started = time.perf_counter()
        self.until = started + seconds
        connections: list[_Connection] = []
        for _ in range(self._load.num_connections):
            _, connection = await loop.create_connection(
                lambda: _Connection(self), "127.0.0.1", self._load.port
            )
            connections.append(connection)
        await asyncio.gather(*(one.over for one in connections))
        return time.perf_counter() - started

    def count(self, answer: bytes, latency_s: float) -> str | None:
        """Take an answer; return what is wrong with it, if anything is."""
        status = answer[9:12]
        self.statuses[status] += 1
        self.latencies_s.append(latency_s)
        if status not in self._good:
            return f"the server answered {answer[:500]!r}; every feedback must be accepted"
        if self._load.num_items > 1 and answer.count(b'"accepted"') != self._load.num_items:
            return f"not every item of a batch was accepted: {answer[:500]!r}"
        return None


async def send(load: Load) -> Answered:
    """Send one load.

    Raises:
        NotTakenError: an answer other than accepted.
    """
    requests = requests_of(load)
    await _Runner(load, requests).run(load.warm_up_s)
    runner = _Runner(load, requests)
    took_s = await runner.run(load.seconds)
    latencies = runner.latencies_s.tolist()
    return Answered(
        per_s=len(latencies) * load.num_items / took_s,
        p50_ms=percentile(latencies, 0.5) * 1000,
        p99_ms=percentile(latencies, 0.99) * 1000,
        num_requests=len(latencies),
    )


def requests_of(load: Load) -> Iterator[bytes]:
    """Return the requests that a load sends, without end."""
    if load.traces:
        return assessment_requests(load.traces)
    return feedback_requests(load.key, num_items=load.num_items)


def send_apart(load: Load) -> Answered:
    """Send one load from a process of its own.

    Raises:
        subprocess.SubprocessError: an answer other than accepted, or none in time.
    """
    timeout_s = load.warm_up_s + load.seconds + _PATIENCE_S
    return ask("benchmarks.ingest.load", load, Answered, timeout_s=timeout_s)


def main() -> int:
    """Return the exit code."""
    load = Load.model_validate_json(sys.argv[1])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            answered = runner.run(send(load))
        except NotTakenError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    sys.stdout.write(answered.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
