import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ingest.judge_endpoint import JudgeEndpoint, open_endpoint
from ingest.settings import JudgeSettings
from tests.scripted_judge import Says, score, scripted_judge
from tests.servers import free_port
from tidemill.errors import ConfigurationError, JudgeError
from tidemill.rewards.metrics_file import parse_metrics

METRIC = '[metrics.accepted]\ntype = "bool"\nwindow_s = 60\n'
JUDGED = parse_metrics(
    METRIC + '[judges.kind]\nmodel = "m"\n[judges.kind.items.kind]\nquestion = "Is it kind?"'
)
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "a secret of the user"}]}
KEY = "sk-not-to-be-told"


def ask(url: str, *, timeout_s: float = 20.0) -> float:
    endpoint = JudgeEndpoint(url, api_key=KEY, timeout_s=timeout_s)
    try:
        return endpoint.ask(REQUEST)
    finally:
        endpoint.close()


trickle_started = threading.Event()


@contextmanager
def trickle(begin: bytes, again: bytes) -> Iterator[str]:
    """Answer one request with some bytes, and then with some more for as long as one listens."""
    trickle_started.clear()
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            try:
                connection.sendall(begin)
                while True:
                    connection.sendall(again)
                    trickle_started.set()
                    time.sleep(0.01)
            except OSError:
                return  # nobody listens any more

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    thread.join(20)
    listener.close()


def test_a_judge_is_asked_with_the_key_and_answers_with_a_score() -> None:
    with scripted_judge(score(7)) as judge:
        assert ask(judge.url) == 0.7
        assert judge.requests == [REQUEST]
        assert judge.authorization == [f"Bearer {KEY}"]


def body(**over: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"content": '{"score": 1}'}}]} | over).encode()


@pytest.mark.parametrize(
    "says",
    [
        Says(body=body(), status=500),
        Says(body=body(), status=429),
        Says(body=KEY.encode(), status=401),
        Says(body=body(), status=301),
        Says(body=b""),
        Says(body=b"\xff\xfe"),
        Says(body=b"[" * 100_000),
        Says(body=b"[]"),
        Says(body=b"null"),
        Says(body=body(choices=[])),
        Says(body=body(choices={"0": 1})),
        Says(body=body(choices=[{"message": None}])),
        Says(body=body(choices=[{"message": {"content": None}}])),
        Says(body=body(padding="x" * 1_100_000)),
        Says("I would say eight."),
    ],
)
def test_what_is_no_score_is_an_error_that_tells_no_secret(
    says: Says, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with scripted_judge(says) as judge, pytest.raises(JudgeError) as refused:
        ask(judge.url)
    told = f"{refused.value} {caplog.text}"
    assert KEY not in told
    assert "secret of the user" not in told


def test_a_judge_that_is_silent_or_away_is_an_error() -> None:
    never = threading.Event()
    with scripted_judge(Says("{}", waits=never)) as judge:
        with pytest.raises(JudgeError, match="took too long"):
            ask(judge.url, timeout_s=0.05)
        never.set()
    with pytest.raises(JudgeError, match="ConnectError"):
        ask(f"http://127.0.0.1:{free_port()}/v1")


@pytest.mark.parametrize(
    ("begin", "again"),
    [
        (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nx-thoughts: ", b"hm, "),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", b"x"),
    ],
)
def test_an_answer_that_trickles_in_for_ever_ends_in_time(begin: bytes, again: bytes) -> None:
    with trickle(begin, again) as url, pytest.raises(JudgeError, match="took too long"):
        ask(url, timeout_s=0.3)


def test_an_answer_that_unpacks_to_nothing_for_ever_is_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"
    packed = head + b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    with (
        trickle(packed, b"\x00\x00\x00\xff\xff") as url,
        pytest.raises(JudgeError, match="packed its answer"),
    ):
        ask(url)


def test_closing_gives_up_what_is_asked_now() -> None:
    with trickle(b"", b"HTTP/1.1 102 Processing\r\n\r\n") as url, ThreadPoolExecutor() as pool:
        endpoint = JudgeEndpoint(url, api_key=None, timeout_s=600)
        asked = pool.submit(endpoint.ask, REQUEST)
        while not trickle_started.wait(0.01):
            pass
        endpoint.close()
        with pytest.raises(JudgeError, match="the worker ends"):
            asked.result(20)
        with pytest.raises(JudgeError, match="the worker ends"):
            endpoint.ask(REQUEST)


def test_no_judge_is_reached_that_is_not_declared() -> None:
    settings = JudgeSettings(url="http://127.0.0.1:1/v1", api_key_env="NO_SUCH_KEY")
    assert open_endpoint(parse_metrics(METRIC), settings, {}) is None


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (JudgeSettings(), r"judges\.kind is declared.*ingest\.judge\.url is not set"),
        (JudgeSettings(url="http://x/v1", api_key_env="KEY"), "KEY, but that environment"),
        (JudgeSettings(url="http://x/v1", api_key_env="BAD"), "BAD, but that environment"),
    ],
)
def test_a_declared_judge_needs_its_endpoint_and_key(
    settings: JudgeSettings, complaint: str
) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        open_endpoint(JUDGED, settings, {"BAD": f"{KEY}\n"})
    assert KEY not in str(refused.value)


def test_the_key_comes_from_the_named_variable() -> None:
    with scripted_judge() as judge:
        settings = JudgeSettings(url=judge.url, api_key_env="MY_KEY")
        endpoint = open_endpoint(JUDGED, settings, {"MY_KEY": KEY})
        assert endpoint is not None
        endpoint.ask(REQUEST)
        endpoint.close()
        assert judge.authorization == [f"Bearer {KEY}"]
