import asyncio
import subprocess
import sys
import time

import pytest

from checks.files import ROOT
from tests.feedback_clients import FAST, feedback
from tests.scripted_feedback_api import Reply, ScriptedApi
from tidemill.client import AsyncFeedbackClient, Options, Status


def _client(api: ScriptedApi, **over) -> AsyncFeedbackClient:
    return AsyncFeedbackClient(api.url, options=Options(**(FAST | over)))


def test_many_tasks_may_use_one_client(api) -> None:
    async def run() -> None:
        async with _client(api) as client:
            sent = asyncio.gather(*(client.send(feedback(f"s{at}")) for at in range(50)))
            for at in range(50):
                await client.queue(feedback(f"q{at}"))
            assert {one.status for one in await sent} == {Status.ACCEPTED}

    asyncio.run(run())
    assert len(api.acknowledged) == len(set(api.acknowledged)) == 100
    assert [one for one in api.acknowledged if one[0] == "q"] == [f"q{at}" for at in range(50)]


def test_the_loop_goes_on_while_a_client_waits(api) -> None:
    api.script.append(Reply(503, headers={"retry-after": "1"}))

    async def run() -> int:
        async with _client(api, retry_after_max_s=0.3) as client:
            sending = asyncio.create_task(client.send(feedback("f0")))
            turns = 0
            while not sending.done():
                turns += 1
                await asyncio.sleep(0.01)
            return turns

    assert asyncio.run(run()) > 5


def test_a_send_that_is_cancelled_ends_at_once(api) -> None:
    api.choose = lambda _: time.sleep(0.5) or Reply(503)

    async def run() -> None:
        async with _client(api) as client:
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.send(feedback("f0")), 0.1)
            assert time.monotonic() - started < 0.4

    asyncio.run(run())


def test_a_cancelled_close_reports_what_was_not_sent(api) -> None:
    api.stop()
    unsent: list[str] = []

    async def run() -> None:
        client = AsyncFeedbackClient(
            api.url,
            options=Options(**FAST),
            on_unsent=lambda left: unsent.extend(one.feedback_id for one in left),
        )
        await client.queue(feedback("f0"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.close(timeout_s=60.0), 0.2)

    asyncio.run(run())
    assert unsent == ["f0"]


def test_a_callback_that_fails_stops_nothing(api, caplog) -> None:
    api.script.append(Reply(items={"f0": "rejected"}))

    def fail(_: object) -> None:
        raise KeyError("broken")

    async def run() -> None:
        client = AsyncFeedbackClient(api.url, options=Options(**FAST), on_rejected=fail)
        async with client:
            await client.queue(feedback("f0"))
            assert await client.flush()
            await client.queue(feedback("f1"))

    asyncio.run(run())
    assert api.acknowledged == ["f1"]
    assert "on_rejected failed for f0" in caplog.text


def test_an_unexpected_failure_does_not_end_the_sending_task(api, monkeypatch, caplog) -> None:
    async def run() -> None:
        async with _client(api) as client:
            post, failures = client._http.post, [OSError("unexpected")]

            async def sometimes(*given, **named):
                if failures:
                    raise failures.pop()
                return await post(*given, **named)

            monkeypatch.setattr(client._http, "post", sometimes)
            await client.queue(feedback("f0"))
            assert await client.flush()

    asyncio.run(run())
    assert api.acknowledged == ["f0"]
    assert "a batch could not be sent" in caplog.text


@pytest.mark.parametrize("delay_s", [0.0, 0.3])
def test_what_nobody_closed_is_reported_at_exit(api, delay_s) -> None:
    api.choose = lambda _: time.sleep(2.0) or Reply()
    script = f"""
import asyncio, sys
from tidemill.client import AsyncFeedbackClient, Feedback, Options
async def run():
    client = AsyncFeedbackClient(sys.argv[1], options=Options(send_after_s=0.01))
    one = Feedback(feedback_id="f0", interaction_id="i", metric="m", value=True)
    await client.queue(one)
    await asyncio.sleep({delay_s})
    return client
kept = asyncio.run(run())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, api.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "1 feedbacks were not acknowledged: f0" in done.stderr
    assert done.returncode == 0
