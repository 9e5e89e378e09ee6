import json

import pytest

from tests.feedback_clients import feedback
from tidemill.client.answers import Answer, Status
from tidemill.client.delivery import (
    NDJSON,
    Pause,
    Post,
    compute_wait_s,
    deliver_batch,
    deliver_feedback,
    deliver_round,
    pick_batch,
)
from tidemill.client.options import Options
from tidemill.errors import RefusedError, UnacknowledgedError

OPTIONS = Options(attempts=4, backoff_first_s=1.0, backoff_max_s=3.0, retry_after_max_s=20.0)
ACCEPTED = Answer(202, b'{"feedback_id": "f1", "status": "accepted"}')
BUSY = Answer(503, b"{}", retry_after_s=5.0)


def _half() -> float:
    return 0.5


def _play(steps, *answers):
    """Return the steps and what came out of them, given the answers to its posts in order."""
    told, left = [], list(answers)
    try:
        step = next(steps)
        while True:
            told.append(step)
            answer = left.pop(0) if isinstance(step, Post) else Answer(0)
            step = steps.send(answer)
    except StopIteration as end:
        assert left == []
        return told, end.value


def _items(answer_of, post: Post) -> Answer:
    sent = [json.loads(line)["feedback_id"] for line in post.body.split(b"\n")]
    said = [{"feedback_id": one, "status": answer_of(one)} for one in sent]
    return Answer(207, json.dumps({"items": said}).encode())


def test_every_attempt_has_the_same_bytes() -> None:
    steps, receipt = _play(
        deliver_feedback(feedback("f1"), OPTIONS, _half), Answer(0), BUSY, ACCEPTED
    )
    posts = [step for step in steps if isinstance(step, Post)]
    assert len(posts) == 3
    assert len(set(posts)) == 1
    assert (receipt.feedback_id, receipt.status) == ("f1", Status.ACCEPTED)


def test_waits_double_up_to_a_limit_and_add_to_what_was_asked() -> None:
    answers = [Answer(0), Answer(0), Answer(0)]
    steps, _ = _play(deliver_feedback(feedback("f1"), OPTIONS, _half), *answers, ACCEPTED)
    # Half of 1, of 2, and of 4, which is cut to 3.
    assert [step.seconds for step in steps if isinstance(step, Pause)] == [0.5, 1.0, 1.5]
    steps, _ = _play(deliver_feedback(feedback("f1"), OPTIONS, _half), BUSY, ACCEPTED)
    assert steps[1] == Pause(5.5)


def test_a_retry_after_beyond_the_limit_is_cut() -> None:
    wait_s = compute_wait_s(OPTIONS, num_failures=1, retry_after_s=3600.0, draw=lambda: 0.0)
    assert wait_s == 20.0


def test_jitter_is_over_the_whole_wait() -> None:
    waits = [
        compute_wait_s(OPTIONS, num_failures=2000, retry_after_s=None, draw=lambda at=at: at / 10)
        for at in range(10)
    ]
    assert waits == pytest.approx([0.3 * at for at in range(10)])


def test_attempts_run_out_and_the_error_names_the_id() -> None:
    with pytest.raises(UnacknowledgedError, match=r"feedback_id f1.*503") as caught:
        _play(deliver_feedback(feedback("f1"), OPTIONS, _half), *[BUSY] * 4)
    assert caught.value.problem.status == 503
    with pytest.raises(UnacknowledgedError, match="refused") as caught:
        _play(deliver_feedback(feedback("f1"), OPTIONS, _half), *[Answer(0, why="refused")] * 4)
    assert caught.value.problem is None


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 422])
def test_a_refusal_is_final(status) -> None:
    with pytest.raises(RefusedError) as caught:
        _play(deliver_feedback(feedback("f1"), OPTIONS, _half), Answer(status, b'{"detail": "no"}'))
    assert (caught.value.problem.status, caught.value.problem.detail) == (status, "no")
    assert caught.value.problem.ids == {"feedback_id": "f1"}


@pytest.mark.parametrize("status", [200, 202, 204, 408, 425, 429, 500, 502, 503, 504])
def test_what_says_nothing_against_the_record_is_tried_again(status) -> None:
    _, receipt = _play(
        deliver_feedback(feedback("f1"), OPTIONS, _half), Answer(status, b"<html>"), ACCEPTED
    )
    assert receipt.status is Status.ACCEPTED


def test_a_batch_refused_as_a_whole_is_halved_down_to_the_one_at_fault() -> None:
    items = [feedback(f"f{at}") for at in range(8)]
    steps = deliver_round(items)
    step, num_posts = next(steps), 0
    try:
        while True:
            num_posts += 1
            is_bad = b'"f5"' in step.body
            step = steps.send(Answer(422, b"{}") if is_bad else _items(lambda _: "accepted", step))
    except StopIteration as end:
        results = end.value.results
    assert [one.feedback_id for one in results] == [f"f{at}" for at in range(8)]
    assert [at for at, one in enumerate(results) if one.status is Status.REJECTED] == [5]
    assert results[5].problem.status == 422
    # 8, 4, 4, 2, 1, 1, 2: each bad half once, and its other half.
    assert num_posts == 7


def test_the_longest_wait_of_the_halves_is_kept() -> None:
    items = [feedback("f1"), feedback("f2")]
    answers = [Answer(413), Answer(503, retry_after_s=2.0), Answer(503, retry_after_s=4.0)]
    _, found = _play(deliver_round(items), *answers)
    assert found.retry_after_s == 4.0
    assert {one.status for one in found.results} == {Status.RETRY}


def test_a_wrong_key_rejects_each_item_with_the_problem() -> None:
    _, found = _play(deliver_round([feedback("f1"), feedback("f2")]), Answer(401, b"{}"))
    assert {one.status for one in found.results} == {Status.REJECTED}
    assert {one.problem.status for one in found.results} == {401}


def test_only_what_is_not_settled_is_sent_again() -> None:
    options = Options(attempts=3, max_batch_items=2)
    items = [feedback(f"f{at}") for at in range(5)]
    steps = deliver_batch(items, options, _half)
    sent, step = [], next(steps)
    try:
        while True:
            if isinstance(step, Pause):
                sent.append("pause")
                step = steps.send(Answer(0))
                continue
            assert step.content_type == NDJSON
            ids = [json.loads(line)["feedback_id"] for line in step.body.split(b"\n")]
            say = {"f1": "retry", "f3": "rejected", "f4": "retry"}
            if "pause" in sent:
                say["f4"] = "duplicate"
            sent.append(ids)
            step = steps.send(_items(lambda one, say=say: say.get(one, "accepted"), step))
    except StopIteration as end:
        results = end.value
    first = [["f0", "f1"], ["f2", "f3"], ["f4"]]
    assert sent == [*first, "pause", ["f1", "f4"], "pause", ["f1"]]
    assert [one.status.value for one in results] == [
        "accepted",
        "retry",
        "accepted",
        "rejected",
        "duplicate",
    ]


def test_an_empty_batch_sends_nothing() -> None:
    assert _play(deliver_batch([], OPTIONS, _half)) == ([], [])


@pytest.mark.parametrize(
    ("sizes", "number"),
    [
        ([], 0),
        ([4], 1),
        ([400], 1),  # larger than allowed, but alone: the API says what it thinks of it
        ([4, 4], 2),  # 2 x (4 + 1) = 10
        ([4, 5], 1),
        ([1, 1, 1, 1], 3),
    ],
)
def test_a_batch_is_bounded_by_items_and_bytes(sizes, number) -> None:
    assert pick_batch(sizes, Options(max_batch_items=3, max_batch_bytes=10)) == number
