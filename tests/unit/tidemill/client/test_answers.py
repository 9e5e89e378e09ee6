import json
from datetime import UTC, datetime

import pytest

from tests.feedback_clients import feedback
from tidemill.client.answers import (
    Answer,
    Status,
    parse_retry_after,
    read_items,
    read_status,
)

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def _answer(status: int, body: object) -> Answer:
    return Answer(status, json.dumps(body).encode())


def test_an_acknowledgement_names_the_record() -> None:
    said = {"feedback_id": "f1", "status": "accepted"}
    assert read_status(_answer(202, said), feedback_id="f1") is Status.ACCEPTED
    again = said | {"status": "duplicate"}
    assert read_status(_answer(200, again), feedback_id="f1") is Status.DUPLICATE


@pytest.mark.parametrize(
    "answer",
    [
        _answer(202, {"feedback_id": "another", "status": "accepted"}),
        _answer(202, {"feedback_id": "f1", "status": "rejected"}),
        _answer(202, {"feedback_id": "f1"}),
        _answer(201, {"feedback_id": "f1", "status": "accepted"}),
        _answer(503, {"feedback_id": "f1", "status": "accepted"}),
        _answer(200, ["accepted"]),
        Answer(200, b"<html>Welcome to our network</html>"),
        Answer(202, b"\xff"),
        Answer(200, b"[" * 100_000),
        Answer(0),
    ],
)
def test_nothing_else_acknowledges(answer) -> None:
    assert read_status(answer, feedback_id="f1") is None


def test_items_are_read_in_order_and_with_suspicion() -> None:
    said = [
        {"status": "accepted", "feedback_id": "f0"},
        {"status": "rejected", "feedback_id": None, "reason": "no such metric"},
        {"status": "accepted", "feedback_id": "another"},
        {"status": "unheard of", "feedback_id": "f3"},
        "accepted",
        {"status": "retry", "feedback_id": "f5", "reason": 7},
    ]
    results = read_items(
        _answer(207, {"items": said}), [feedback(f"f{at}") for at in range(len(said))]
    )
    assert [(one.feedback_id, one.status.value) for one in results] == [
        ("f0", "accepted"),
        ("f1", "rejected"),
        ("f2", "retry"),
        ("f3", "retry"),
        ("f4", "retry"),
        ("f5", "retry"),
    ]
    assert [one.is_acknowledged for one in results] == [True] + [False] * 5
    assert [one.reason for one in results][:2] == [None, "no such metric"]
    assert results[5].reason is None


@pytest.mark.parametrize(
    "answer",
    [
        _answer(207, {"items": []}),
        _answer(207, {"items": 1}),
        _answer(207, {}),
        _answer(200, {"items": [{"status": "accepted", "feedback_id": "f1"}]}),
    ],
)
def test_an_answer_to_another_batch_says_nothing(answer) -> None:
    assert read_items(answer, [feedback("f1")]) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("1", 1.0),
        (" 120 ", 120.0),
        ("9" * 400, 999_999_999.0),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("\u0663", None),
        ("Tue, 01 Dec 2026 12:00:30 GMT", 30.0),
        ("Tue, 01 Dec 2026 12:00:30 -0000", 30.0),
        ("Tue, 01 Dec 2026 11:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(text, seconds) -> None:
    assert parse_retry_after(text, now=NOW) == seconds


def test_a_problem_has_what_was_said() -> None:
    body = {"type": "t", "title": "conflict", "status": 409, "detail": "known", "field": "value"}
    problem = _answer(409, body | {"feedback_id": "f1"}).problem()
    assert str(problem) == "409 conflict: known (field value)"
    assert (problem.type, problem.ids) == ("t", {"feedback_id": "f1"})


def test_a_proxy_s_page_is_a_problem_too() -> None:
    problem = Answer(404, b"<html>").problem()
    assert str(problem).startswith("404 not an answer of the feedback API: see the address")
    assert problem.field is None


def test_no_answer_is_no_problem_of_the_record() -> None:
    answer = Answer(0, why="ConnectError: refused")
    assert answer.problem() is None
    assert str(answer) == "ConnectError: refused"
