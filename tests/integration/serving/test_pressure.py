"""Queues that are full, callers that hang up, a log and a disk that are away, engines that fail."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from serving.settings import ServingSettings
from tests.memory_log import MemoryLog
from tests.scripted_serving import (
    CHALLENGER,
    CHAMPION,
    KEY,
    Scripted,
    ScriptedEngine,
    scripted_serving,
)
from tidemill.contracts.events import FinishReason
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import EventSink, Position
from tidemill.policy.base_model import BaseModel
from tidemill.policy.engine.requests import Generation, TokenChunk
from tidemill.registry import Traffic

BODY = {"model": "tide", "messages": [{"role": "user", "content": "hi"}]}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "did not come true"
        time.sleep(0.005)


def ask(server: Scripted) -> Any:
    with server.client() as client:
        return client.chat.completions.create(**BODY)  # type: ignore[call-overload]


def test_more_requests_than_fit_get_429(base: BaseModel, tmp_path: Path) -> None:
    settings = ServingSettings(max_batch=2, max_waiting=1)
    with (
        scripted_serving(base, tmp_path, lambda _: "hello", settings=settings) as server,
        ThreadPoolExecutor(3) as pool,
    ):
        server.may_speak.clear()
        answers = [pool.submit(ask, server) for _ in range(3)]
        wait_until(lambda: server.service.scheduler.num_in_flight == 3)

        with pytest.raises(openai.RateLimitError) as caught:
            ask(server)
        assert caught.value.response.headers["retry-after"]

        server.may_speak.set()
        assert {a.result().choices[0].message.content for a in answers} == {"hello"}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_caller_who_hangs_up_is_recorded_as_aborted(
    base: BaseModel, tmp_path: Path, is_streamed: bool
) -> None:
    async def hang_up(server: Scripted) -> None:
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}) as client:
            asking = asyncio.create_task(
                client.post(
                    f"{server.url}/v1/chat/completions", json=BODY | {"stream": is_streamed}
                )
            )
            while server.service.scheduler.num_in_flight == 0:
                await asyncio.sleep(0.005)
            asking.cancel()

    with scripted_serving(base, tmp_path, lambda _: "hello") as server:
        server.may_speak.clear()
        asyncio.run(hang_up(server))
        wait_until(lambda: server.service.counters.aborted == 1)

        [event] = server.events()
        assert event.finish_reason is FinishReason.ABORTED
        assert server.service.scheduler.num_in_flight == 0


class BrokenSink:
    """Fails at once, or never answers."""

    def __init__(self, log: "BrokenLog") -> None:
        self._log = log

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        if self._log.is_back:
            return MemoryLog.sink(self._log).append(topic, key, value)
        future: Future[Position] = Future()
        if self._log.answers:
            future.set_exception(EventLogUnavailableError("the broker is away"))
        else:
            self._log.waiting.append(future)
        return future

    def close(self) -> None:
        pass


class BrokenLog(MemoryLog):
    """A log that takes nothing until it is back."""

    answers = True
    is_back = False

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Future[Position]] = []

    def sink(self) -> EventSink:
        return BrokenSink(self)


@pytest.mark.parametrize("answers", [True, False])
def test_while_the_log_is_away_answers_are_spooled_first(
    base: BaseModel, tmp_path: Path, answers: bool
) -> None:
    log = BrokenLog()
    log.answers = answers
    settings = ServingSettings(append_timeout_s=0.1)
    with scripted_serving(base, tmp_path, lambda _: "hello", settings=settings, log=log) as server:
        told = {ask(server).id for _ in range(3)}
        assert server.spool.num_pending() == 3

        log.is_back = True
        wait_until(lambda: len(server.events()) == 3)
        assert {event.interaction_id for event in server.events()} == told


@pytest.mark.parametrize("is_streamed", [False, True])
def test_without_log_and_disk_no_answer_is_given(
    base: BaseModel, tmp_path: Path, is_streamed: bool
) -> None:
    with scripted_serving(base, tmp_path, lambda _: "hello", log=BrokenLog()) as server:
        (tmp_path / "spool").rmdir()
        (tmp_path / "spool").write_text("a file where the folder was")
        with server.client() as client, pytest.raises(openai.APIError, match="cannot be recorded"):
            list(client.chat.completions.create(**BODY, stream=is_streamed))  # type: ignore[call-overload]
        (tmp_path / "spool").unlink()
        (tmp_path / "spool").mkdir()


class FailingEngine(ScriptedEngine):
    """Breaks at its first step."""

    def step(self) -> list[TokenChunk | Generation]:
        raise RuntimeError("a kernel failed")


def test_a_failing_engine_fails_its_requests_only(base: BaseModel, tmp_path: Path) -> None:
    with scripted_serving(base, tmp_path, lambda _: "hello") as server:
        server.engine[0] = FailingEngine
        server.registry.now = Traffic(CHAMPION, CHALLENGER, 0.5, "salt")
        server.service.watcher.tick()
        with server.client() as client, pytest.raises(openai.InternalServerError):
            client.chat.completions.create(**(BODY | {"model": f"tide@{CHALLENGER}"}))  # type: ignore[call-overload]

        assert ask_pinned(server, CHAMPION) == "hello"


def ask_pinned(server: Scripted, version: str) -> str:
    with server.client() as client:
        answer = client.chat.completions.create(**(BODY | {"model": f"tide@{version}"}))  # type: ignore[call-overload]
    content: str = answer.choices[0].message.content
    return content


def test_a_flip_lets_running_requests_finish_on_their_version(
    base: BaseModel, tmp_path: Path
) -> None:
    with (
        scripted_serving(base, tmp_path, lambda _: "hello") as server,
        ThreadPoolExecutor(4) as pool,
    ):
        server.may_speak.clear()
        old = [pool.submit(ask, server) for _ in range(4)]
        wait_until(lambda: server.service.scheduler.num_in_flight == 4)
        server.registry.now = Traffic(champion=CHALLENGER)
        server.service.watcher.tick()
        assert server.service.scheduler.versions == (CHAMPION, CHALLENGER)

        server.may_speak.set()
        assert {a.result().model for a in old} == {f"tide@{CHAMPION}"}
        assert ask(server).model == f"tide@{CHALLENGER}"
        wait_until(lambda: server.service.scheduler.versions == (CHALLENGER,))
        [_, swap] = server.swaps
        assert (swap.version, swap.role, swap.outcome) == (CHALLENGER, "champion", "flipped")
        assert swap.in_flight == 4


def test_a_request_that_only_waits_for_the_log_counts_at_a_flip(
    base: BaseModel, tmp_path: Path
) -> None:
    log = BrokenLog()
    log.answers = False
    settings = ServingSettings(append_timeout_s=60.0)
    with (
        scripted_serving(base, tmp_path, lambda _: "hello", settings=settings, log=log) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        asking = [pool.submit(ask, server) for _ in range(2)]
        wait_until(lambda: len(log.waiting) == 2)
        assert server.service.scheduler.num_in_flight == 0, "every token is there"
        server.registry.now = Traffic(champion=CHALLENGER)
        server.service.watcher.tick()
        log.is_back = True
        for future in list(log.waiting):
            future.set_exception(EventLogUnavailableError("the broker is away"))
        assert [a.result().model for a in asking] == [f"tide@{CHAMPION}"] * 2
        assert server.swaps[-1].in_flight == 2
        wait_until(lambda: server.service.num_in_flight == 0)
