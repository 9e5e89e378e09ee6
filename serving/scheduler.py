"""One thread that decodes for everybody: one engine a live version, a step of each in turn.

Handlers submit from the event loop and read their ticket. A version leaves only when its last
request has ended. The thread alone touches the engines.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from serving.errors import ApiError
from serving.tickets import Answer, Ticket, deliver
from tidemill.errors import ContractError, TidemillError
from tidemill.policy.engine.requests import Generation, GenerationRequest, TokenChunk

_log = logging.getLogger(__name__)

_WATCH_TICK_S = 0.001
"""While a swap is measured, an idle thread looks this often, so that a stall of its own shows."""


class VersionGoneError(TidemillError):
    """The version left between routing and submitting; route again."""


class Engine(Protocol):
    """What the scheduler needs of a batch engine."""

    @property
    def num_active(self) -> int:
        """Requests in the batch."""
        ...

    @property
    def num_waiting(self) -> int:
        """Requests that wait for a place."""
        ...

    def submit(self, request: GenerationRequest) -> None:
        """Take a request."""
        ...

    def cancel(self, request_id: str) -> Generation | None:
        """Drop a request; return what it had so far, if it was running."""
        ...

    def step(self) -> list[TokenChunk | Generation]:
        """Decode one token for each active request."""
        ...


EngineFactory = Callable[[], Engine]


@dataclass(slots=True)
class _Slot:
    """A live version."""

    make_engine: EngineFactory
    engine: Engine
    tickets: dict[str, Ticket] = field(default_factory=dict)
    is_retiring: bool = False


class AdmissionWatch:
    """Longest time between two moments at which a new request could start."""

    def __init__(self, started_at: float) -> None:
        self._last = started_at
        self.longest_s = 0.0

    def mark(self, moment: float) -> None:
        """Note that a request could start now."""
        self.longest_s = max(self.longest_s, moment - self._last)
        self._last = moment


class Scheduler:
    """Owns the decoding thread; every method may be called from any thread."""

    def __init__(
        self, *, max_in_flight: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Prepare; `start` begins.

        Args:
            max_in_flight: requests accepted at a time, over all versions.
            clock: monotonic seconds.
        """
        self._max_in_flight = max_in_flight
        self._clock = clock
        self._changed = threading.Condition()
        self._slots: dict[str, _Slot] = {}
        self._commands: list[Callable[[], list[tuple[Ticket, Answer]]]] = []
        self._num_in_flight = 0
        self._watch: AdmissionWatch | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    @property
    def num_in_flight(self) -> int:
        """Requests submitted and not ended."""
        return self._num_in_flight

    def start(self) -> None:
        """Begin to decode."""
        self._thread.start()

    def stop(self, *, timeout_s: float) -> bool:
        """Decode what is under way, then end the thread; tell whether it ended in time."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether the decoding thread runs."""
        return self._thread.is_alive()

    @property
    def accepting(self) -> tuple[str, ...]:
        """Versions that take requests."""
        with self._changed:
            return tuple(v for v, slot in self._slots.items() if not slot.is_retiring)

    def add(self, version: str, make_engine: EngineFactory) -> None:
        """Make a version available; one that is in memory already just goes on."""
        engine = make_engine()
        with self._changed:
            slot = self._slots.setdefault(version, _Slot(make_engine, engine))
            slot.is_retiring = False

    def revive(self, version: str) -> bool:
        """Let a version that is leaving take requests again; False = it is not in memory."""
        with self._changed:
            slot = self._slots.get(version)
            if slot is not None:
                slot.is_retiring = False
            return slot is not None

    def retire(self, version: str) -> None:
        """Take no more requests for a version, and forget it after its last one."""
        with self._changed:
            if version in self._slots:
                self._slots[version].is_retiring = True
                self._changed.notify()

    @property
    def versions(self) -> tuple[str, ...]:
        """Versions in memory, those that are leaving included."""
        with self._changed:
            return tuple(self._slots)

    def submit(self, version: str, request: GenerationRequest, ticket: Ticket) -> None:
        """Queue a request; its answers come through the ticket.

        Raises:
            ApiError: too many requests.
            VersionGoneError: the version takes no more requests.
        """
        with self._changed:
            slot = self._slots.get(version)
            if slot is None or slot.is_retiring:
                raise VersionGoneError(f"{version} takes no more requests")
            if self._num_in_flight >= self._max_in_flight:
                raise ApiError(
                    429,
                    f"{self._num_in_flight} requests are under way, no more are taken; try again",
                    code="rate_limit_exceeded",
                )
            self._num_in_flight += 1
            slot.tickets[request.request_id] = ticket
            self._commands.append(lambda: self._start(slot, request))
            self._changed.notify()

    def cancel(self, version: str, request_id: str) -> None:
        """Stop a request; its ticket ends with what was generated so far (`aborted`)."""
        with self._changed:
            slot = self._slots.get(version)
            if slot is not None and request_id in slot.tickets:
                self._commands.append(lambda: self._abort(slot, request_id))
                self._changed.notify()

    @contextmanager
    def watch_admission(self) -> Iterator[AdmissionWatch]:
        """Measure while the block runs; one watch at a time."""
        with self._changed:
            watch = self._watch = AdmissionWatch(self._clock())
            self._changed.notify()
        try:
            yield watch
        finally:
            with self._changed:
                self._watch = None
                watch.mark(self._clock())

    def _run(self) -> None:
        while self._admit():
            with self._changed:
                slots = list(self._slots.values())
            for slot in slots:
                if slot.tickets:
                    deliver(self._end(slot, self._step(slot)))
            self._forget_retired()

    def _admit(self) -> bool:
        """Take in what was queued; False = stop."""
        with self._changed:
            if not self._commands and not self._num_in_flight and not self._is_stopping:
                self._changed.wait(None if self._watch is None else _WATCH_TICK_S)
            if self._watch is not None:
                self._watch.mark(self._clock())
            commands, self._commands = self._commands, []
            is_over = self._is_stopping and not self._num_in_flight and not commands
        for command in commands:
            deliver(command())
        return not is_over

    def _start(self, slot: _Slot, request: GenerationRequest) -> list[tuple[Ticket, Answer]]:
        ticket = slot.tickets.get(request.request_id)
        if ticket is None:
            # The engine failed while this waited, so its caller has an error already.
            return []
        try:
            slot.engine.submit(request)
        except ContractError as error:
            refusal = ApiError(400, str(error), code="invalid_value", param="messages")
            return self._end(slot, [(ticket, refusal)])
        except Exception:
            _log.exception("an engine did not take a request; it fails alone")
            return self._end(slot, [(ticket, _engine_failed())])
        return []

    def _abort(self, slot: _Slot, request_id: str) -> list[tuple[Ticket, Answer]]:
        ticket = slot.tickets.get(request_id)
        if ticket is None:
            return []
        try:
            partial = slot.engine.cancel(request_id)
        except Exception:
            self._fail(slot)
            return []
        gone = ApiError(499, "the request was cancelled", code="cancelled")
        return self._end(slot, [(ticket, partial or gone)])

    def _step(self, slot: _Slot) -> list[tuple[Ticket, Answer]]:
        try:
            events = slot.engine.step()
        except Exception:
            self._fail(slot)
            return []
        known = [(slot.tickets.get(event.request_id), event) for event in events]
        return [(ticket, event) for ticket, event in known if ticket is not None]

    def _fail(self, slot: _Slot) -> None:
        """Answer all of a version's requests with an error, then give it a new engine.

        One bad call must not end the thread that everybody needs. Callers hear of it before the
        new engine is made: when that fails too, the thread ends, and the process with it.
        """
        with self._changed:
            tickets = list(slot.tickets.values())
        _log.exception("an engine failed; %d requests fail", len(tickets))
        deliver(self._end(slot, [(ticket, _engine_failed()) for ticket in tickets]))
        slot.engine = slot.make_engine()

    def _end(
        self, slot: _Slot, answers: list[tuple[Ticket, Answer]]
    ) -> list[tuple[Ticket, Answer]]:
        ended = [ticket for ticket, answer in answers if not isinstance(answer, TokenChunk)]
        if ended:
            with self._changed:
                for ticket in ended:
                    del slot.tickets[ticket.request_id]
                self._num_in_flight -= len(ended)
        return answers

    def _forget_retired(self) -> None:
        with self._changed:
            gone = [v for v, slot in self._slots.items() if slot.is_retiring and not slot.tickets]
            for version in gone:
                del self._slots[version]


def _engine_failed() -> ApiError:
    return ApiError(500, "generation failed; see the server's log", code="engine_failed")
