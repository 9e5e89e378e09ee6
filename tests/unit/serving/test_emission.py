import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from serving.emission import Emitter
from serving.errors import ApiError
from tests.factories import make_interaction
from tests.memory_log import MemoryLog
from tidemill.contracts.events import INTERACTIONS
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import EventLog, EventSink, Position
from tidemill.eventlog.spool import Spool


class Flaky(MemoryLog):
    """A log that can be away, refuse, or keep silent."""

    mood = "good"

    def create_topics(self, topics: tuple[str, ...]) -> None:
        if self.mood == "away":
            raise EventLogUnavailableError("away")
        super().create_topics(topics)

    def sink(self) -> EventSink:
        return FlakySink(self)

    def num_records(self) -> int:
        return sum(bounds.end for bounds in self.bounds(INTERACTIONS).values())


class FlakySink:
    def __init__(self, log: Flaky) -> None:
        self._log = log
        self._inner = MemoryLog.sink(log)

    def append(self, topic: str, key: str, value: bytes) -> Future[Position]:
        if self._log.mood == "good":
            return self._inner.append(topic, key, value)
        future: Future[Position] = Future()
        if self._log.mood == "refusing":
            future.set_exception(EventLogUnavailableError("no"))
        return future

    def close(self) -> None:
        self._inner.close()


def start(log: EventLog, folder: Path, *, drain_every_s: float = 0.02) -> tuple[Emitter, Spool]:
    spool = Spool(folder)
    emitter = Emitter(
        open_log=lambda: log, spool=spool, append_timeout_s=0.05, drain_every_s=drain_every_s
    )
    emitter.start()
    return emitter, spool


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_event_is_in_the_log_when_emit_returns(tmp_path: Path) -> None:
    log = Flaky()
    emitter, spool = start(log, tmp_path)
    asyncio.run(emitter.emit(make_interaction()))

    assert (log.num_records(), spool.num_pending(), emitter.num_logged) == (1, 0, 1)
    emitter.close()


@pytest.mark.parametrize("mood", ["refusing", "silent"])
def test_an_event_is_in_the_spool_when_the_log_does_not_take_it(tmp_path: Path, mood: str) -> None:
    log = Flaky()
    emitter, spool = start(log, tmp_path, drain_every_s=60)
    log.mood = mood
    asyncio.run(emitter.emit(make_interaction()))
    assert (log.num_records(), spool.num_pending(), emitter.num_spooled) == (0, 1, 1)

    log.mood = "good"
    emitter.close()
    assert (log.num_records(), spool.num_pending()) == (1, 0)


def test_after_a_failure_the_log_is_left_alone_for_a_second(tmp_path: Path) -> None:
    log, now = Flaky(), [0.0]
    spool = Spool(tmp_path)
    emitter = Emitter(
        open_log=lambda: log,
        spool=spool,
        append_timeout_s=5,
        drain_every_s=60,
        clock=lambda: now[0],
    )
    emitter.start()
    log.mood = "refusing"
    asyncio.run(emitter.emit(make_interaction()))
    log.mood = "good"
    for now[0] in (0.5, 1.0):
        asyncio.run(emitter.emit(make_interaction()))

    assert (emitter.num_spooled, emitter.num_logged) == (2, 1)
    emitter.close()


def test_a_log_that_is_away_at_the_start_is_opened_later(tmp_path: Path) -> None:
    log = Flaky()
    log.mood = "away"
    emitter, spool = start(log, tmp_path)
    asyncio.run(emitter.emit(make_interaction()))
    assert spool.num_pending() == 1

    log.mood = "good"
    wait_until(lambda: spool.num_pending() == 0)
    assert log.num_records() == 1
    emitter.close()


def test_what_a_predecessor_left_is_brought_to_the_log(tmp_path: Path) -> None:
    event = make_interaction()
    left = Spool(tmp_path)
    left.append(INTERACTIONS, event.key, event.model_dump_json().encode())
    left.close()
    log = Flaky()
    emitter, spool = start(log, tmp_path)

    wait_until(lambda: spool.num_pending() == 0)
    assert log.num_records() == 1
    emitter.close()


def test_without_log_and_disk_the_answer_is_refused(tmp_path: Path) -> None:
    log = Flaky()
    emitter, _ = start(log, tmp_path / "spool")
    log.mood = "refusing"
    (tmp_path / "spool").rmdir()
    with pytest.raises(ApiError) as caught:
        asyncio.run(emitter.emit(make_interaction()))
    assert caught.value.status == 503
    emitter.close()
