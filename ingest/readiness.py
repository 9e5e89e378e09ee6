"""Whether what a part needs answers: asked when somebody wants to know, once for all who do.

What is down says so at once; what hangs says nothing. So each question has a thread of its own, at
most one, however often it is asked, and whoever waits gives up after a short time.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future

_log = logging.getLogger(__name__)


class Readiness:
    """Used on one event loop."""

    def __init__(
        self,
        questions: Mapping[str, Callable[[], object]],
        *,
        timeout_s: float,
        fresh_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            questions: by the name of what is asked; each blocks, and raises when it is not there.
            timeout_s: longest wait for an answer, counted from when the question was put.
            fresh_s: an answer stands so long after its question: nobody needs a key to ask.
            clock: seconds that never go back.
        """
        self._probes = {
            name: _Probe(ask, timeout_s=timeout_s, fresh_s=fresh_s, clock=clock)
            for name, ask in questions.items()
        }

    async def missing(self) -> list[str]:
        """Return a sentence on each that is not there or does not answer."""
        found = await asyncio.gather(*(one.flaw() for one in self._probes.values()))
        return [
            f"the {name} {flaw}"
            for name, flaw in zip(self._probes, found, strict=True)
            if flaw is not None
        ]


class _Probe:
    def __init__(
        self,
        ask: Callable[[], object],
        *,
        timeout_s: float,
        fresh_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._timeout_s = timeout_s
        self._fresh_s = fresh_s
        self._clock = clock
        self._asked_at_s = 0.0
        self._answer: Future[str | None] | None = None

    async def flaw(self) -> str | None:
        answer = self._begun()
        left_s = self._asked_at_s + self._timeout_s - self._clock()
        if not answer.done() and left_s > 0:
            await asyncio.wait({asyncio.wrap_future(answer)}, timeout=left_s)
        return answer.result() if answer.done() else "does not answer"

    def _begun(self) -> Future[str | None]:
        """Return the question that is under way, or was a moment ago, or put it again."""
        now, answer = self._clock(), self._answer
        if answer is None or (answer.done() and now - self._asked_at_s >= self._fresh_s):
            answer = self._answer = Future()
            self._asked_at_s = now
            # A daemon: what hangs must not hold up the end of the process.
            threading.Thread(target=self._run, args=(answer,), name="ready", daemon=True).start()
        return answer

    def _run(self, answer: Future[str | None]) -> None:
        try:
            self._ask()
        except Exception as error:
            # Whatever it is, it is not there; strangers are not told what was said.
            _log.warning("not ready: %s", error)
            answer.set_result("cannot be reached")
        else:
            answer.set_result(None)
