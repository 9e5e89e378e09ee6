"""The client for products on the real feedback API: over HTTP, in this process and in its own."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from sqlalchemy import select

from ingest.api_process import _http_config
from ingest.settings import IngestSettings
from tests.factories import VERSION, make_interaction
from tests.feedback_clients import FAST, Blocking, feedback
from tests.ingest_client import Client
from tests.ingest_processes import installation
from tidemill.client import (
    FeedbackClient,
    Interaction,
    Options,
    RefusedError,
    Status,
    comment,
)
from tidemill.process import listen
from tidemill.storage.tables import FeedbackRow, InteractionRow


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Client]:
    """The application's parts, with a limit on batches that the client does not know of."""
    rig = Client(tmp_path, IngestSettings(max_batch_items=20, max_in_flight=15))
    yield rig
    rig.close()


@pytest.fixture
def url(rig: Client) -> Iterator[str]:
    """Where the application listens."""
    listener = listen("127.0.0.1", 0, setting="ingest.port")
    http = uvicorn.Server(_http_config(rig.server.api))
    thread = threading.Thread(target=http.run, args=([listener],))
    thread.start()
    while not http.started:
        time.sleep(0.005)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    http.should_exit = True
    thread.join()


def _rows(rig: Client) -> dict[str, FeedbackRow]:
    with rig.database.reading() as session:
        return {row.feedback_id: row for row in session.scalars(select(FeedbackRow))}


def test_what_is_acknowledged_is_in_the_ledger(rig: Client, url: str) -> None:
    served = make_interaction()
    with Blocking(url, rig.keys["admin"]) as client:
        sent = Interaction(
            interaction_id=served.interaction_id,
            policy_version=VERSION,
            content={"messages": [], "completion": "lights are on"},
            sampling={"temperature": 1.0, "max_tokens": 8},
        )
        assert client.send_interaction(sent).status is Status.ACCEPTED
        assert client.send_interaction(sent).status is Status.DUPLICATE
        assert client.send(feedback("f1", rater="joe")).status is Status.ACCEPTED
        assert client.send(feedback("f1", rater="joe")).status is Status.DUPLICATE
        with pytest.raises(RefusedError) as caught:
            client.send(feedback("f1", value=False, rater="joe"))
        assert caught.value.problem.status == 409
        with pytest.raises(RefusedError, match="not declared"):
            client.send(feedback("f2", metric="nope"))
        client.queue(feedback("f3", metric="note", value=comment("zu lang")))
    rig.work()
    assert set(_rows(rig)) == {"f1", "f3"}
    with rig.database.reading() as session:
        assert session.get_one(InteractionRow, (served.interaction_id, "default"))


def test_batches_beyond_the_api_s_limits_arrive_in_parts(rig: Client, url: str) -> None:
    # 422 for more than 20 items, and 429 for more than 15 on their way.
    with Blocking(url, rig.keys["feedback:write"], send_after_s=60.0, max_batch_items=60) as client:
        for at in range(150):
            client.queue(feedback(f"f{at}", metric="nope" if at % 50 == 7 else "accepted"))
        assert client.flush(30)
    assert sorted(told.feedback.feedback_id for told in client.rejected) == ["f107", "f57", "f7"]
    rig.work()
    assert len(_rows(rig)) == 147


def test_a_wrong_key_is_told(url: str) -> None:
    with pytest.raises(RefusedError, match="401"), FeedbackClient(url, "tdm_wrong") as client:
        client.send(feedback("f1"))


@pytest.mark.integration
def test_kills_of_the_api_lose_and_double_nothing(tmp_path: Path) -> None:
    with installation(tmp_path) as installed:
        installed.start("worker")
        process = installed.start_api()
        options = Options(**(FAST | {"send_after_items": 10, "max_batch_items": 25}))
        with FeedbackClient(installed.url, options=options) as client:
            for at in range(600):
                client.queue(feedback(f"f{at}"))
                time.sleep(0.001)
                if at in (200, 400):
                    installed.kill(process)
                    process = installed.start_api()
            assert client.flush(60)
        deadline = time.monotonic() + 60
        found: list[str] = []
        while len(found) < 600 and time.monotonic() < deadline:
            time.sleep(0.1)
            with installed.database.reading() as session:
                found = list(session.scalars(select(FeedbackRow.feedback_id)))
    assert sorted(found) == sorted(f"f{at}" for at in range(600))
