import json
import logging
import threading
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
        with pytest.raises(JudgeError, match="ReadTimeout"):
            ask(judge.url, timeout_s=0.05)
        never.set()
    with pytest.raises(JudgeError, match="ConnectError"):
        ask(f"http://127.0.0.1:{free_port()}/v1")


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
