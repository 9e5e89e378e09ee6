"""The way back from the scheduler's thread to the handler that waits for tokens."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping

from serving.errors import ApiError
from tidemill.policy.engine.requests import Generation, TokenChunk

Answer = TokenChunk | Generation | ApiError


class Ticket:
    """One request's answers in order; made and read on one event loop, filled from any thread."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[Answer] = asyncio.Queue()

    async def next(self) -> TokenChunk | Generation:
        """Wait for the next chunk, or the generation that ends it.

        Raises:
            ApiError: the engine failed.
        """
        answer = await self._answers.get()
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def finish(self) -> Generation:
        """Skip what is left of the chunks and return the generation.

        Raises:
            ApiError: the engine failed.
        """
        while not isinstance(answer := await self.next(), Generation):
            pass
        return answer

    def put(self, answer: Answer) -> None:
        """Add an answer; only on the ticket's own loop."""
        self._answers.put_nowait(answer)


def deliver(answers: Iterable[tuple[Ticket, Answer]]) -> None:
    """Hand answers to their loops, one wake-up a loop; a loop that is closed needs none."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Ticket, Answer]]] = {}
    for ticket, answer in answers:
        by_loop.setdefault(ticket.loop, []).append((ticket, answer))
    _wake(by_loop)


def _wake(by_loop: Mapping[asyncio.AbstractEventLoop, list[tuple[Ticket, Answer]]]) -> None:
    for loop, answers in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_put_all, answers)


def _put_all(answers: list[tuple[Ticket, Answer]]) -> None:
    for ticket, answer in answers:
        ticket.put(answer)
