"""The serving part around an engine that says what a test wants, over real HTTP."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import openai
import uvicorn

from serving.app import build_app
from serving.emission import Emitter
from serving.keyring import KeyRing
from serving.scheduler import Scheduler
from serving.service import Backend, Service
from serving.settings import ServingSettings
from serving.tokens import build_token_table
from serving.watcher import SwapRecord, Watcher
from tests.memory_log import MemoryLog
from tests.servers import free_port
from tidemill.contracts.codec import decode
from tidemill.contracts.events import INTERACTIONS, FinishReason, InteractionServed
from tidemill.eventlog.spool import Spool
from tidemill.policy.base_model import BaseModel
from tidemill.policy.chat import encode_text
from tidemill.policy.engine.requests import (
    Generation,
    GenerationRequest,
    TokenAlternative,
    TokenChunk,
)
from tidemill.registry import Traffic
from tidemill.storage.keys import ApiKey, Scope
from tidemill.subjects import SubjectHasher

CHAMPION, CHALLENGER = "v1-0123456789ab", "v2-0123456789ab"
KEY = "tdm_key"
LOGPROB = -0.25

Say = Callable[[GenerationRequest], str]


class ScriptedEngine:
    """Gives a text token by token; holds its tongue while `may_speak` is not set."""

    def __init__(self, base: BaseModel, say: Say, may_speak: threading.Event) -> None:
        self._base = base
        self._say = say
        self._may_speak = may_speak
        self._waiting: dict[str, tuple[GenerationRequest, deque[int], list[int]]] = {}

    @property
    def num_active(self) -> int:
        return len(self._waiting)

    @property
    def num_waiting(self) -> int:
        return 0

    def submit(self, request: GenerationRequest) -> None:
        ids = deque(encode_text(self._base, self._say(request)))
        self._waiting[request.request_id] = (request, ids, [])

    def cancel(self, request_id: str) -> Generation | None:
        request, _, said = self._waiting.pop(request_id)
        return self._generation(request, said, FinishReason.ABORTED)

    def step(self) -> list[TokenChunk | Generation]:
        if not self._may_speak.is_set():
            time.sleep(0.001)
            return []
        events: list[TokenChunk | Generation] = []
        for request, ids, said in list(self._waiting.values()):
            if ids and len(said) < request.sampling.max_tokens:
                said.append(ids.popleft())
                events.append(self._chunk(request, said[-1]))
            if not ids or len(said) >= request.sampling.max_tokens:
                reason = FinishReason.LENGTH if ids else FinishReason.STOP
                del self._waiting[request.request_id]
                events.append(self._generation(request, said, reason))
        return events

    def _chunk(self, request: GenerationRequest, token_id: int) -> TokenChunk:
        return TokenChunk(
            request_id=request.request_id,
            token_ids=(token_id,),
            logprobs=(LOGPROB,),
            text_delta=self._base.tokenizer.decode([token_id]),
            top_logprobs=(_alternatives(request, token_id),),
        )

    def _generation(
        self, request: GenerationRequest, said: list[int], reason: FinishReason
    ) -> Generation:
        return Generation(
            request_id=request.request_id,
            prompt_ids=request.prompt_ids,
            completion_ids=tuple(said),
            logprobs=(LOGPROB,) * len(said),
            kept_mass=None,
            finish_reason=reason,
            text=self._base.tokenizer.decode(said) if said else "",
            top_logprobs=tuple(_alternatives(request, i) for i in said),
        )


def _alternatives(request: GenerationRequest, token_id: int) -> tuple[TokenAlternative, ...]:
    one = TokenAlternative(token_id=token_id, logprob=LOGPROB)
    return (one,) * request.top_logprobs


@dataclass
class ScriptedReplica:
    """The process around the watcher."""

    swaps: list[SwapRecord] = field(default_factory=list)
    service: Service | None = None

    @property
    def num_in_flight(self) -> int:
        """How many requests are under way."""
        return self.service.num_in_flight if self.service else 0

    def record_swap(self, record: SwapRecord) -> None:
        """Keep a swap."""
        self.swaps.append(record)


@dataclass
class FixedTraffic:
    """A registry that a test sets."""

    now: Traffic

    def traffic(self) -> Traffic:
        return self.now


@dataclass
class Scripted:
    """A running server with its parts in reach."""

    service: Service
    log: MemoryLog
    spool: Spool
    registry: FixedTraffic
    may_speak: threading.Event
    replica: ScriptedReplica
    engine: list[type[ScriptedEngine]]
    """The kind that the next version gets."""
    port: int

    @property
    def swaps(self) -> list[SwapRecord]:
        """What the watcher recorded."""
        return self.replica.swaps

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def events(self) -> list[InteractionServed]:
        """Return the interactions in the log, in order of their ids."""
        values = [
            record.value
            for place, records in self.log.partitions.items()
            if place.topic == INTERACTIONS
            for record in records
        ]
        found = [decode(InteractionServed, value) for value in values]
        return sorted(found, key=lambda event: event.interaction_id.split(".")[1])

    def client(self, key: str = KEY) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def async_client(self) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=KEY, max_retries=0)


@contextmanager
def scripted_serving(
    base: BaseModel,
    folder: Path,
    say: Say,
    *,
    log: MemoryLog | None = None,
    settings: ServingSettings | None = None,
) -> Iterator[Scripted]:
    """Serve scripted answers while the block runs; the champion is there when it begins."""
    settings = settings or ServingSettings()
    memory, spool, may_speak = MemoryLog(), Spool(folder / "spool"), threading.Event()
    replica = ScriptedReplica()
    may_speak.set()
    scheduler = Scheduler(max_in_flight=settings.max_batch + settings.max_waiting)
    registry = FixedTraffic(Traffic(champion=CHAMPION))
    engine: list[type[ScriptedEngine]] = [ScriptedEngine]
    watcher = Watcher(
        registry=registry,
        load_version=lambda _: lambda kind=engine[0]: kind(base, say, may_speak),
        scheduler=scheduler,
        replica=replica,
        refused_retry_s=1.0,
    )
    service = Service(
        model="tide",
        tenant="default",
        settings=settings,
        scheduler=scheduler,
        watcher=watcher,
        emitter=Emitter(
            open_log=lambda: log or memory,
            spool=spool,
            append_timeout_s=settings.append_timeout_s,
            drain_every_s=0.05,
        ),
        keyring=KeyRing(_find_key, tenant="default", fresh_s=5, stale_s=60),
        hasher=SubjectHasher(b"0123456789abcdef"),
        backend=Backend(base=base, table=build_token_table(base.tokenizer), max_context=512),
    )
    replica.service = service
    scheduler.start()
    service.emitter.start()
    watcher.tick()
    port = free_port()
    http = uvicorn.Server(
        uvicorn.Config(build_app(service), port=port, log_config=None, lifespan="off", ws="none")
    )
    thread = threading.Thread(target=http.run)
    thread.start()
    while not http.started:
        time.sleep(0.005)
    try:
        yield Scripted(service, log or memory, spool, registry, may_speak, replica, engine, port)
    finally:
        may_speak.set()
        http.should_exit = True
        thread.join()
        scheduler.stop(timeout_s=10)
        service.emitter.close()


def _find_key(text: str) -> ApiKey | None:
    keys = {
        KEY: ApiKey("key", "default", frozenset({Scope.COMPLETIONS})),
        "tdm_reader": ApiKey("reader", "default", frozenset({Scope.READ})),
        "tdm_other": ApiKey("other", "another", frozenset({Scope.COMPLETIONS})),
    }
    return keys.get(text)
