import time

import pytest

from tests.feedback_clients import TARGET, feedback
from tests.scripted_feedback_api import Reply
from tests.servers import free_port
from tidemill.client import (
    ClientClosedError,
    Interaction,
    RefusedError,
    Status,
    UnacknowledgedError,
)

BUSY = Reply(503, headers={"retry-after": "0"})


def test_one_feedback_is_acknowledged(api, make_client) -> None:
    client = make_client(api.url, "tdm_key")
    receipt = client.send(feedback("f1"))
    assert (receipt.feedback_id, receipt.status) == ("f1", Status.ACCEPTED)
    assert client.send(feedback("f1")).status is Status.DUPLICATE
    (request, _) = api.requests
    assert (request.path, request.key) == ("/v1/feedback", "Bearer tdm_key")
    assert api.stored["f1"]["interaction_id"] == TARGET


def test_without_a_key_none_is_sent(api, make_client) -> None:
    make_client(api.url).send(feedback("f1"))
    assert api.requests[0].key is None


def test_an_attempt_that_failed_is_repeated_with_the_same_id(api, make_client) -> None:
    api.script.extend([BUSY, Reply(drops=True), Reply(429)])
    receipt = make_client(api.url).send(feedback())
    assert receipt.status is Status.ACCEPTED
    assert api.sent_ids == [[receipt.feedback_id]] * 4


def test_an_answer_that_was_lost_counts_once(api, make_client) -> None:
    api.script.append(Reply(drops=True, stores=True))
    receipt = make_client(api.url).send(feedback("f1"))
    assert receipt.status is Status.DUPLICATE
    assert list(api.stored) == ["f1"]


def test_a_page_of_a_proxy_acknowledges_nothing(api, make_client) -> None:
    api.script.append(Reply(200, body=b"<html>Please log in</html>"))
    make_client(api.url).send(feedback("f1"))
    assert len(api.requests) == 2
    assert "f1" in api.stored


def test_the_api_is_obeyed_when_it_asks_for_time(api, make_client) -> None:
    api.script.append(Reply(503, headers={"retry-after": "1"}))
    client = make_client(api.url, retry_after_max_s=0.3)
    started = time.monotonic()
    client.send(feedback("f1"))
    assert 0.3 <= time.monotonic() - started < 1.0


def test_a_refusal_has_the_problem(api, make_client) -> None:
    api.script.append(Reply(409))
    with pytest.raises(RefusedError, match="409 title 409: detail 409") as caught:
        make_client(api.url).send(feedback("f1"))
    problem = caught.value.problem
    assert (problem.status, problem.field, problem.ids) == (409, "value", {"feedback_id": "f1"})
    assert len(api.requests) == 1


def test_attempts_are_counted(api, make_client) -> None:
    api.script.extend([BUSY] * 9)
    with pytest.raises(UnacknowledgedError, match="3 attempts failed"):
        make_client(api.url, attempts=3).send(feedback("f1"))
    assert len(api.requests) == 3


def test_a_port_where_nobody_listens_is_no_refusal(make_client) -> None:
    client = make_client(f"http://127.0.0.1:{free_port()}", attempts=2)
    with pytest.raises(UnacknowledgedError, match="ConnectError"):
        client.send(feedback("f1"))


def test_an_api_that_never_answers_is_given_up_in_time(api, make_client) -> None:
    api.choose = lambda _: time.sleep(1.0) or BUSY
    client = make_client(api.url, attempts=1, timeout_s=0.1)
    with pytest.raises(UnacknowledgedError, match="ReadTimeout"):
        client.send(feedback("f1"))


def test_a_batch_tells_what_became_of_each(api, make_client) -> None:
    api.script.extend([BUSY, Reply(items={"f1": "rejected", "f2": "retry"}), Reply(drops=True)])
    results = make_client(api.url).send_batch([feedback(f"f{at}") for at in range(4)])
    assert [one.status.value for one in results] == ["accepted", "rejected", "accepted", "accepted"]
    assert results[1].reason == "said rejected"
    assert api.sent_ids[1:] == [["f0", "f1", "f2", "f3"], ["f2"], ["f2"]]


def test_a_batch_of_any_size_goes_in_requests_that_the_api_takes(api, make_client) -> None:
    results = make_client(api.url).send_batch([feedback(f"f{at}") for at in range(2_500)])
    assert all(one.is_acknowledged for one in results)
    assert [len(one) for one in api.sent_ids] == [1000, 1000, 500]
    assert [one.feedback_id for one in results] == [f"f{at}" for at in range(2_500)]


def test_what_a_batch_could_not_deliver_is_told(api, make_client) -> None:
    api.script.extend([BUSY] * 2)
    (result,) = make_client(api.url, attempts=2).send_batch([feedback("f1")])
    assert (result.status, result.problem.status) == (Status.RETRY, 503)


def test_an_interaction_is_repeated_with_its_ids(api, make_client) -> None:
    api.script.append(Reply(drops=True, stores=True))
    sent = Interaction(
        policy_version="v3-0123456789ab",
        content={"messages": [], "completion": "yes"},
        sampling={"temperature": 1.0, "max_tokens": 8},
    )
    receipt = make_client(api.url).send_interaction(sent)
    assert receipt.status is Status.DUPLICATE
    assert receipt.interaction_id == sent.interaction_id
    assert receipt.trajectory_id == sent.trajectory_id
    assert [one.path for one in api.requests] == ["/v1/interactions"] * 2


def test_a_closed_client_says_so(api, make_client) -> None:
    client = make_client(api.url)
    client.close()
    for call in (client.send, client.queue):
        with pytest.raises(ClientClosedError):
            call(feedback("f1"))
    with pytest.raises(ClientClosedError):
        client.send_batch([feedback("f1")])
    assert client.close() == ()
