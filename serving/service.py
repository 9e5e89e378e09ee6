"""One request from its prompt to its record: route, submit, follow, parse, make durable."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from serving.emission import Emitter
from serving.errors import ApiError, model_not_found
from serving.interactions import Caller, Draft, Prompt, judged_calls
from serving.keyring import KeyRing
from serving.lineup import Route, model_names, pinned_name, pinned_version
from serving.responses import ChatAnswer, Label
from serving.scheduler import Scheduler, VersionGoneError
from serving.settings import ServingSettings
from serving.tickets import Ticket
from serving.tokens import TokenTable
from serving.watcher import Watcher
from tidemill.contracts.events import FinishReason, Sampling, ToolCall
from tidemill.contracts.ids import new_interaction_id
from tidemill.policy.base_model import BaseModel
from tidemill.policy.engine.requests import Generation, GenerationRequest, TokenChunk
from tidemill.policy.tool_calls import ParsedCompletion, parse_tool_calls
from tidemill.subjects import SubjectHasher

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
"""The server's way to say that the caller hung up."""

_MAX_ROUTINGS = 8
"""A version can leave between routing and submitting, but not again and again."""


class CallerGoneError(Exception):
    """The caller hung up; what was generated is recorded as aborted, nobody reads an answer."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The base and what is derived from it."""

    base: BaseModel
    table: TokenTable
    max_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What a request asks of the engine."""

    model: str
    """As the caller wrote it."""
    caller: Caller
    prompt: Prompt
    sampling: Sampling
    stops: tuple[str, ...]
    is_streamed: bool
    top_logprobs: int


@dataclass(slots=True)
class Counters:
    """What happened since the start."""

    completed: int = 0
    aborted: int = 0
    failed: int = 0
    completion_tokens: int = 0


@dataclass(slots=True, kw_only=True)
class Service:
    """What handlers share; made by `serving.server`."""

    model: str
    tenant: str
    settings: ServingSettings
    scheduler: Scheduler
    watcher: Watcher
    emitter: Emitter
    keyring: KeyRing
    hasher: SubjectHasher
    backend: Backend | None = None
    """None until the base is loaded."""
    threads: Sequence[threading.Thread] = ()
    """More threads that must live; they may end once `is_stopping` is set."""
    is_stopping: bool = False
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    counters: Counters = field(default_factory=Counters)
    num_in_flight: int = 0
    """Requests whose last byte is not sent yet, also those that only wait for the log."""

    @property
    def missing(self) -> str:
        """Why no request can be served now; empty when it can."""
        if dead := self.dead:
            return f"this replica must be restarted, it lost its {' and '.join(dead)} thread"
        if self.is_stopping:
            return "this replica stops"
        return self.watcher.missing

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of threads that ended while the process needs them."""
        is_alive = {"scheduler": self.scheduler.is_alive, "emitter": self.emitter.is_alive}
        if not self.is_stopping:
            is_alive |= {thread.name: thread.is_alive() for thread in self.threads}
        return tuple(name for name, lives in is_alive.items() if not lives)

    def require_backend(self) -> Backend:
        """Return the base.

        Raises:
            ApiError: nobody serves yet.
        """
        if self.backend is None or self.watcher.lineup.champion is None or self.dead:
            raise _not_ready(self.missing)
        return self.backend

    def model_names(self) -> list[str]:
        """Return the names that a caller may ask for."""
        versions = self.watcher.lineup.versions
        return model_names(self.model, versions) if versions else []

    def figures(self) -> dict[str, float]:
        """Return what this replica counts, by name."""
        return {
            "completed_total": self.counters.completed,
            "aborted_total": self.counters.aborted,
            "failed_total": self.counters.failed,
            "completion_tokens_total": self.counters.completion_tokens,
            "logged_total": self.emitter.num_logged,
            "spooled_total": self.emitter.num_spooled,
            "swaps_total": self.watcher.num_swaps,
            "in_flight": self.num_in_flight,
        }

    def start(self, ask: Ask) -> "Running":
        """Route and submit a request.

        Raises:
            ApiError: nobody serves, no such model, or too many requests.
        """
        interaction_id = new_interaction_id(ask.caller.trajectory_id)
        ticket = Ticket(interaction_id)
        request = GenerationRequest(
            request_id=interaction_id,
            prompt_ids=ask.prompt.prompt_ids,
            sampling=ask.sampling,
            stop=ask.stops,
            is_streamed=ask.is_streamed,
            top_logprobs=ask.top_logprobs,
        )
        draft = Draft(
            interaction_id=interaction_id,
            model=self.model,
            caller=ask.caller,
            prompt=ask.prompt,
            route=self._submit(ask, request, ticket),
            sampling=ask.sampling,
            requested_at=datetime.now(UTC),
        )
        return Running(self, draft, ticket)

    def _submit(self, ask: Ask, request: GenerationRequest, ticket: Ticket) -> Route:
        for _ in range(_MAX_ROUTINGS):
            route = self._route(ask.model, unit=ask.caller.unit)
            with contextlib.suppress(VersionGoneError):
                self.scheduler.submit(route.version, request, ticket)
                return route
        raise _not_ready("versions change too fast")

    def _route(self, name: str, *, unit: str) -> Route:
        lineup = self.watcher.lineup
        version = pinned_version(name, model=self.model)
        if version is None:
            raise model_not_found(name, known=self.model_names())
        route = lineup.pin(version) if version else lineup.route(unit)
        if route is None and version:
            raise model_not_found(name, known=self.model_names())
        if route is None:
            raise _not_ready(self.missing)
        return route


@dataclass(slots=True)
class Served:
    """A generation that is durable."""

    generation: Generation
    answer: ChatAnswer


class Running:
    """One request under way."""

    def __init__(self, service: Service, draft: Draft, ticket: Ticket) -> None:
        self.draft = draft
        self._service = service
        self._ticket = ticket
        self._began = time.perf_counter()

    @property
    def label(self) -> Label:
        """What every body of the response repeats."""
        draft = self.draft
        return Label(
            interaction_id=draft.interaction_id,
            model=pinned_name(draft.model, draft.route.version),
            version=draft.route.version,
            created=int(draft.requested_at.timestamp()),
        )

    @contextlib.asynccontextmanager
    async def followed(self, receive: Receive) -> AsyncIterator[None]:
        """Abort the request when its caller hangs up, or the block is left early."""
        self._service.num_in_flight += 1
        watch = asyncio.ensure_future(_hung_up(receive))
        watch.add_done_callback(lambda task: None if task.cancelled() else self._cancel())
        try:
            yield
        except BaseException:
            self._cancel()
            raise
        finally:
            watch.cancel()
            self._service.num_in_flight -= 1

    async def next(self) -> TokenChunk | Generation:
        """Wait for the next chunk, or the generation that ends it.

        Raises:
            ApiError: the engine failed.
        """
        try:
            return await self._ticket.next()
        except ApiError:
            self._service.counters.failed += 1
            raise

    async def whole(self) -> Generation:
        """Wait for the generation.

        Raises:
            ApiError: the engine failed.
        """
        while not isinstance(answer := await self.next(), Generation):
            pass
        return answer

    async def record(self, generation: Generation) -> Served:
        """Parse what came out and return once its event is durable.

        Raises:
            ApiError: it cannot be made durable, or the model computed no number.
            CallerGoneError: nobody waits for it any more; it is durable all the same.
        """
        prompt, reason = self.draft.prompt, generation.finish_reason
        is_aborted = reason is FinishReason.ABORTED
        text = generation.text
        # Half a call is no attempt at a call when the caller hung up in the middle.
        parsed = ParsedCompletion(text, ()) if is_aborted else parse_tool_calls(text, prompt.tools)
        calls = judged_calls(
            parsed.tool_calls, must_call=prompt.must_call, finish_reason=generation.finish_reason
        )
        event = self.draft.complete(
            generation,
            tool_calls=calls,
            served_at=datetime.now(UTC),
            latency_ms=1000 * (time.perf_counter() - self._began),
        )
        await self._service.emitter.emit(event)
        self._count(generation)
        if is_aborted:
            raise CallerGoneError
        if reason is FinishReason.ERROR:
            raise ApiError(500, "the model computed no finite number", code="engine_failed")
        return Served(generation, chat_answer(generation, parsed, has_tools=bool(prompt.tools)))

    def _count(self, generation: Generation) -> None:
        counters, reason = self._service.counters, generation.finish_reason
        counters.completed += reason in (FinishReason.STOP, FinishReason.LENGTH)
        counters.aborted += reason is FinishReason.ABORTED
        counters.failed += reason is FinishReason.ERROR
        counters.completion_tokens += len(generation.completion_ids)

    def _cancel(self) -> None:
        self._service.scheduler.cancel(self.draft.route.version, self.draft.interaction_id)


def chat_answer(generation: Generation, parsed: ParsedCompletion, *, has_tools: bool) -> ChatAnswer:
    """Return what the caller is told; a call without a name leaves everything in the text."""
    calls: tuple[ToolCall, ...] = parsed.tool_calls
    content = parsed.text_without_calls
    if not all(call.name for call in calls):
        calls, content = (), generation.text
    return ChatAnswer(
        content=content.lstrip() if has_tools else content,
        tool_calls=calls,
        finish_reason=generation.finish_reason,
    )


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _not_ready(missing: str) -> ApiError:
    return ApiError(503, f"not ready: {missing}", code="not_ready")
