"""The parts of ingest as they run: loop, signs of life, HTTP, on both logs."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from ingest.api_process import PART, Server
from ingest.member import Member
from ingest.settings import IngestSettings
from ingest.worker import work
from tests.factories import make_feedback, make_interaction
from tests.servers import free_port
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.errors import ConfigurationError
from tidemill.eventlog.base import EventLog
from tidemill.ledger import take_ledger
from tidemill.process import Pulse, listen
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import fetch_heartbeats
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import AcknowledgedCountRow, InteractionRow, LogOffsetRow

METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 0.3\ndefault = false\n'


def until(condition: Callable[[], bool], timeout_s: float = 30) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@contextmanager
def running(run: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a part in a thread until the block ends."""
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def test_a_log_is_read_joined_and_closed(database: Database, any_log: EventLog) -> None:
    any_log.create_topics((INTERACTIONS, FEEDBACK))
    options = IngestSettings(close_grace_s=0.3, close_every_s=0.05, poll_timeout_s=0.05)
    member = Member(database, any_log, options, parse_metrics(METRICS))
    made = [make_interaction() for _ in range(20)]
    ids = [one.interaction_id for one in made]

    def states() -> list[str]:
        query = select(InteractionRow.state).where(InteractionRow.interaction_id.in_(ids))
        with database.reading() as session:
            return sorted(session.scalars(query))

    with Pulse(database, "ingest-worker", interval_s=0.05) as pulse:
        with running(lambda stop: work(member, stop, pulse)):
            sink = any_log.sink()
            for number, interaction in enumerate(made):
                sink.append(INTERACTIONS, interaction.key, encode(interaction)).result(10)
                if number % 2:
                    feedback = encode(make_feedback(interaction))
                    sink.append(FEEDBACK, interaction.key, feedback).result(10)
            sink.close()
            assert until(lambda: states() == ["defaulted"] * 10 + ["rewarded"] * 10)
            assert pulse.ready
        assert pulse.counters["interactions"] >= 20
        assert pulse.detail.startswith("reads ")
    member.close()
    assert take_ledger(database, any_log).problems == []


def test_failures_in_a_row_are_shown(tmp_path: Path, embedded_log: EventLog) -> None:
    embedded_log.create_topics((INTERACTIONS, FEEDBACK))
    database = Database(f"sqlite:///{tmp_path / 'rows.db'}")
    upgrade(database)
    LogOffsetRow.metadata.drop_all(database.engine, [LogOffsetRow.metadata.tables["log_offsets"]])
    options = IngestSettings(poll_timeout_s=0.05)
    member = Member(database, embedded_log, options, parse_metrics(METRICS))
    with (
        Pulse(database, "ingest-worker", interval_s=0.05) as pulse,
        running(lambda stop: work(member, stop, pulse)),
    ):
        assert until(lambda: "failures in a row" in pulse.detail)
        assert not pulse.ready
    member.close()
    database.close()


@pytest.fixture
def shared(tmp_path: Path) -> SharedSettings:
    metrics = tmp_path / "metrics.toml"
    metrics.write_text(METRICS)
    made = SharedSettings(data=tmp_path / "data", metrics=metrics)
    made.data.mkdir()
    database = Database(made.database_url)
    upgrade(database)
    database.close()
    return made


def test_the_api_listens_drains_and_writes_down_what_it_acknowledged(
    shared: SharedSettings,
) -> None:
    settings = IngestSettings(port=free_port(), require_key=False, count_every_s=0.1)
    server = Server(shared, settings)
    url = f"http://127.0.0.1:{settings.port}"
    body = {
        "interaction_id": make_interaction().interaction_id,
        "metric": "accepted",
        "value": True,
    }

    def is_ready() -> bool:
        try:
            return httpx.get(f"{url}/ready").status_code == 200
        except httpx.TransportError:
            return False

    database = Database(shared.database_url)

    def num_counted() -> int:
        with database.reading() as session:
            return sum(session.scalars(select(AcknowledgedCountRow.num_acknowledged)))

    with running(server.run):
        assert until(is_ready)
        for _ in range(3):
            assert httpx.post(f"{url}/v1/feedback", json=body).status_code == 202
        assert until(lambda: num_counted() == 3)
        assert httpx.post(f"{url}/v1/feedback", json=body).status_code == 202
    assert num_counted() == 4
    with database.reading() as session:
        (sign,) = fetch_heartbeats(session)
    assert (sign.part, sign.ready, sign.counters["accepted"]) == (PART, False, 4)
    database.close()


def test_a_taken_port_is_named(shared: SharedSettings) -> None:
    settings = IngestSettings(port=free_port(), require_key=False)
    with running(Server(shared, settings).run):
        assert until(lambda: _is_open(settings.port))
        with pytest.raises(ConfigurationError, match=rf"{settings.port}.*ingest.port"):
            Server(shared, settings).run(threading.Event())


def test_an_answer_never_waits_for_a_delayed_acknowledgement() -> None:
    with (
        listen("127.0.0.1", 0, setting="ingest.port") as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_without_tables_the_api_does_not_start(tmp_path: Path, shared: SharedSettings) -> None:
    empty = shared.model_copy(update={"data": tmp_path / "other"})
    empty.data.mkdir()
    with pytest.raises(ConfigurationError, match="tidemill db upgrade"):
        Server(empty, IngestSettings(port=0)).run(threading.Event())


def _is_open(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    except httpx.TransportError:
        return False
