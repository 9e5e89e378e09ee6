import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from serving.errors import ApiError
from serving.scheduler import AdmissionWatch, Scheduler, VersionGoneError
from serving.tickets import Ticket
from tidemill.contracts.events import FinishReason, Sampling
from tidemill.errors import ContractError
from tidemill.policy.engine.requests import Generation, GenerationRequest, TokenChunk


def generation(request: GenerationRequest, reason: FinishReason) -> Generation:
    return Generation(
        request_id=request.request_id,
        prompt_ids=request.prompt_ids,
        completion_ids=(),
        logprobs=(),
        kept_mass=None,
        finish_reason=reason,
        text="",
    )


class SilentEngine:
    """Ends requests only when told, refuses empty prompts, breaks on demand."""

    may_end = False
    is_broken = False

    def __init__(self) -> None:
        self.requests: dict[str, GenerationRequest] = {}

    @property
    def num_active(self) -> int:
        return len(self.requests)

    @property
    def num_waiting(self) -> int:
        return 0

    def submit(self, request: GenerationRequest) -> None:
        if not request.prompt_ids:
            raise ContractError("a prompt of 0 tokens")
        self.requests[request.request_id] = request

    def cancel(self, request_id: str) -> Generation | None:
        request = self.requests.pop(request_id, None)
        return None if request is None else generation(request, FinishReason.ABORTED)

    def step(self) -> list[TokenChunk | Generation]:
        if self.is_broken:
            raise RuntimeError("broken")
        if not self.may_end:
            return []
        ended = [generation(request, FinishReason.STOP) for request in self.requests.values()]
        self.requests.clear()
        return list(ended)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler(max_in_flight=2)
    scheduler.start()
    yield scheduler
    scheduler.stop(timeout_s=5)


def make_request(name: str = "a", prompt_ids: tuple[int, ...] = (1,)) -> GenerationRequest:
    return GenerationRequest(
        request_id=name, prompt_ids=prompt_ids, sampling=Sampling(temperature=1, max_tokens=4)
    )


def add(scheduler: Scheduler, version: str = "v1") -> SilentEngine:
    engine = SilentEngine()
    scheduler.add(version, lambda: engine)
    return engine


def submit(scheduler: Scheduler, name: str = "a", version: str = "v1", **over: object) -> Ticket:
    ticket = Ticket(name)
    scheduler.submit(version, make_request(name, **over), ticket)  # type: ignore[arg-type]
    return ticket


async def finish(ticket: Ticket) -> Generation:
    return await asyncio.wait_for(ticket.finish(), 5)


def test_a_request_ends_through_its_ticket(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine = add(scheduler)
        ticket = submit(scheduler)
        assert scheduler.num_in_flight == 1
        engine.may_end = True
        assert (await finish(ticket)).finish_reason is FinishReason.STOP
        assert scheduler.num_in_flight == 0

    asyncio.run(main())


def test_no_more_than_the_limit(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine = add(scheduler)
        tickets = [submit(scheduler, name) for name in "ab"]
        with pytest.raises(ApiError) as caught:
            submit(scheduler, "c")
        assert caught.value.status == 429
        engine.may_end = True
        for ticket in tickets:
            await finish(ticket)
        await finish(submit(scheduler, "c"))

    asyncio.run(main())


def test_a_cancelled_request_ends_with_what_there_was(scheduler: Scheduler) -> None:
    async def main() -> None:
        add(scheduler)
        ticket = submit(scheduler)
        scheduler.cancel("v1", "a")
        assert (await finish(ticket)).finish_reason is FinishReason.ABORTED
        scheduler.cancel("v1", "a")
        scheduler.cancel("v9", "a")

    asyncio.run(main())


def test_a_request_that_the_engine_does_not_know_is_cancelled_with_an_error(
    scheduler: Scheduler,
) -> None:
    async def main() -> None:
        engine = add(scheduler)
        ticket = submit(scheduler)
        while not engine.requests:
            await asyncio.sleep(0.001)
        engine.requests.clear()
        scheduler.cancel("v1", "a")
        with pytest.raises(ApiError, match="cancelled"):
            await finish(ticket)

    asyncio.run(main())


def test_a_request_that_the_engine_refuses_gets_400(scheduler: Scheduler) -> None:
    async def main() -> None:
        add(scheduler)
        with pytest.raises(ApiError, match="0 tokens") as caught:
            await finish(submit(scheduler, prompt_ids=()))
        assert caught.value.status == 400

    asyncio.run(main())


def test_a_broken_step_fails_its_requests_and_the_thread_lives_on(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine, other = add(scheduler), add(scheduler, "v2")
        engine.is_broken = other.may_end = True
        with pytest.raises(ApiError) as caught:
            await finish(submit(scheduler))
        assert caught.value.status == 500
        await finish(submit(scheduler, "b", "v2"))
        assert scheduler.is_alive

    asyncio.run(main())


class HeldEngine(SilentEngine):
    """Its steps wait until they may go on; then they fail while `is_broken`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stepping, self.may_step = threading.Event(), threading.Event()

    def step(self) -> list[TokenChunk | Generation]:
        self.is_stepping.set()
        assert self.may_step.wait(5)
        return super().step()


@pytest.mark.parametrize("prompt_ids", [(1,), ()])
def test_a_request_that_waits_while_a_step_breaks_spoils_nothing_after_it(
    scheduler: Scheduler, prompt_ids: tuple[int, ...]
) -> None:
    async def main() -> None:
        broken, whole = HeldEngine(), SilentEngine()
        broken.is_broken = whole.may_end = True
        engines = iter([broken, whole])
        scheduler.add("v1", lambda: next(engines))
        running = submit(scheduler)
        assert await asyncio.to_thread(broken.is_stepping.wait, 5)
        waiting = submit(scheduler, "b", prompt_ids=prompt_ids)
        broken.may_step.set()
        for ticket in (running, waiting):
            with pytest.raises(ApiError) as caught:
                await finish(ticket)
            assert caught.value.status == 500

        assert (await finish(submit(scheduler, "c"))).finish_reason is FinishReason.STOP
        assert scheduler.num_in_flight == 0
        assert scheduler.is_alive

    asyncio.run(main())


def test_who_fails_with_a_step_is_counted_while_nobody_can_join(scheduler: Scheduler) -> None:
    class Tickets(dict[str, Ticket]):
        def values(self) -> Any:
            assert scheduler._changed._is_owned()
            return super().values()

    async def main() -> None:
        engine = add(scheduler)
        scheduler._slots["v1"].tickets = Tickets()
        engine.is_broken = True
        with pytest.raises(ApiError):
            await finish(submit(scheduler))

    asyncio.run(main())


class BrittleEngine(SilentEngine):
    """Breaks when a request goes, and when one comes that it does not take."""

    takes = True

    def submit(self, request: GenerationRequest) -> None:
        if not self.takes:
            raise RuntimeError("broken")
        super().submit(request)

    def cancel(self, request_id: str) -> Generation | None:
        raise RuntimeError(f"broken by {request_id}")


def test_an_engine_that_does_not_take_a_request_fails_it_alone(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine = BrittleEngine()
        scheduler.add("v1", lambda: engine)
        first = submit(scheduler)
        while not engine.requests:
            await asyncio.sleep(0.001)
        engine.takes = False
        with pytest.raises(ApiError, match="generation failed"):
            await finish(submit(scheduler, "b"))
        engine.may_end = True
        await finish(first)

    asyncio.run(main())


def test_an_engine_that_breaks_at_a_cancellation_is_replaced(scheduler: Scheduler) -> None:
    async def main() -> None:
        engines = iter([BrittleEngine(), SilentEngine()])
        scheduler.add("v1", lambda: next(engines))
        ticket = submit(scheduler)
        scheduler.cancel("v1", "a")
        with pytest.raises(ApiError, match="generation failed"):
            await finish(ticket)
        again = submit(scheduler, "b")
        scheduler.cancel("v1", "b")
        assert (await finish(again)).finish_reason is FinishReason.ABORTED

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_a_new_engine_callers_hear_of_it_before_the_thread_ends() -> None:
    async def main() -> None:
        scheduler = Scheduler(max_in_flight=2)
        scheduler.start()
        broken = SilentEngine()
        broken.is_broken = True
        engines = iter([broken])
        scheduler.add("v1", lambda: next(engines))
        with pytest.raises(ApiError, match="generation failed"):
            await finish(submit(scheduler))
        assert scheduler.stop(timeout_s=5)
        assert not scheduler.is_alive

    asyncio.run(main())


def test_a_retiring_version_finishes_then_goes(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine = add(scheduler)
        ticket = submit(scheduler)
        scheduler.retire("v1")
        scheduler.retire("v9")
        with pytest.raises(VersionGoneError):
            submit(scheduler, "b")
        assert scheduler.versions == ("v1",)
        assert scheduler.accepting == ()
        engine.may_end = True
        await finish(ticket)
        while scheduler.versions:
            await asyncio.sleep(0.001)

    asyncio.run(main())


def test_a_version_that_comes_back_before_it_left_keeps_its_requests(scheduler: Scheduler) -> None:
    async def main() -> None:
        engine = add(scheduler)
        first = submit(scheduler)
        scheduler.retire("v1")
        assert scheduler.revive("v1")
        add(scheduler)
        second = submit(scheduler, "b")
        engine.may_end = True
        await finish(first)
        await finish(second)
        assert scheduler.accepting == ("v1",)
        assert not scheduler.revive("v9")

    asyncio.run(main())


def test_stopping_waits_for_running_requests() -> None:
    async def main() -> None:
        scheduler = Scheduler(max_in_flight=2)
        scheduler.start()
        engine = add(scheduler)
        ticket = submit(scheduler)
        assert not scheduler.stop(timeout_s=0.05)
        engine.may_end = True
        await finish(ticket)
        assert scheduler.stop(timeout_s=5)

    asyncio.run(main())


def test_a_ticket_whose_loop_is_closed_hurts_nobody(scheduler: Scheduler) -> None:
    async def leave() -> None:
        submit(scheduler)

    async def main(engine: SilentEngine) -> None:
        engine.may_end = True
        await finish(submit(scheduler, "b"))

    engine = add(scheduler)
    asyncio.run(leave())
    asyncio.run(main(engine))
    assert scheduler.num_in_flight == 0


def test_the_watch_keeps_the_longest_gap() -> None:
    watch = AdmissionWatch(10.0)
    for moment in (10.1, 10.5, 10.6):
        watch.mark(moment)
    assert watch.longest_s == pytest.approx(0.4)


def test_an_idle_scheduler_shows_no_pause(scheduler: Scheduler) -> None:
    with scheduler.watch_admission() as watch:
        time.sleep(0.1)
    assert 0 < watch.longest_s < 0.1
