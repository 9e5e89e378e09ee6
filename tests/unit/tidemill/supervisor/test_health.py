import http.server
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.factories import NOW
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import write_heartbeat
from tidemill.storage.tables import HeartbeatRow
from tidemill.supervisor.health import (
    PartHealth,
    PartState,
    ask_http,
    changed,
    judge_child,
    judge_sign,
    read_signs,
    with_http,
)


def _sign(*, ready: bool = True, detail: str = "serving v1", age_s: float = 0.5) -> HeartbeatRow:
    return HeartbeatRow(
        part="serving",
        pid=7,
        ready=ready,
        detail=detail,
        counters={"requests": 3},
        started_at=NOW - timedelta(hours=1),
        at=NOW - timedelta(seconds=age_s),
    )


@pytest.mark.parametrize(
    ("sign", "state"),
    [
        (_sign(), PartState.READY),
        (_sign(ready=False, detail="no champion"), PartState.NOT_READY),
        (_sign(age_s=16), PartState.SILENT),
        (_sign(ready=False, detail="stopped", age_s=100), PartState.STOPPED),
    ],
)
def test_a_sign_of_life_is_judged_by_age_and_content(sign: HeartbeatRow, state: PartState) -> None:
    health = judge_sign(sign, now=NOW)
    assert (health.name, health.state, health.pid) == ("serving", state, 7)
    assert health.counters == {"requests": 3}


@pytest.mark.parametrize("sign", [None, _sign()])
def test_the_sign_of_an_earlier_life_says_nothing(sign: HeartbeatRow | None) -> None:
    assert judge_child(sign, name="serving", pid=8, now=NOW).state is PartState.STARTING


def test_the_sign_of_this_life_counts() -> None:
    assert judge_child(_sign(), name="serving", pid=7, now=NOW).state is PartState.READY


def test_only_changes_of_state_are_told() -> None:
    before = [PartHealth("serving", PartState.READY, "v1"), PartHealth("gate", PartState.READY, "")]
    after = [
        PartHealth("serving", PartState.READY, "v2"),
        PartHealth("gate", PartState.SILENT, "no sign"),
        PartHealth("learner", PartState.STARTING, ""),
    ]
    assert [health.name for health in changed(before, after)] == ["gate", "learner"]


def test_signs_are_read_by_part(database: Database) -> None:
    with database.transaction() as session:
        write_heartbeat(session, _sign())
    assert read_signs(database)["serving"].pid == 7


def test_a_database_without_tables_gives_no_signs() -> None:
    assert read_signs(Database("sqlite://")) == {}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def half_ready() -> Iterator[str]:
    """The URL of a server that is healthy, but not ready."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_http_says_which_path_is_not_ready(half_ready: str) -> None:
    assert ask_http(half_ready) == "/ready answers 503"


def test_http_that_does_not_answer_is_told() -> None:
    complaint = ask_http("http://127.0.0.1:1")
    assert complaint is not None
    assert complaint.startswith("/health does not answer")


def test_a_ready_part_must_also_answer() -> None:
    ready = PartHealth("serving", PartState.READY, "v1", 7)
    assert with_http(ready, "http://x", lambda _: None) is ready
    assert with_http(ready, None, lambda _: "never asked") is ready
    silent = with_http(ready, "http://x", lambda _: "/ready answers 503")
    assert (silent.state, silent.detail) == (PartState.NOT_READY, "/ready answers 503")
