import random
import time

import pytest

from tests.feedback_clients import feedback
from tests.scripted_feedback_api import Reply
from tidemill.client import OutboxFullError

BUSY = Reply(503, headers={"retry-after": "0"})


def _wait_for(condition, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.005)


def test_queued_feedback_is_sent_in_batches_and_in_order(api, make_client) -> None:
    client = make_client(api.url, send_after_s=60.0, max_batch_items=40)
    for at in range(100):
        client.queue(feedback(f"f{at}"))
    assert client.flush()
    assert client.num_queued == 0
    assert api.acknowledged == [f"f{at}" for at in range(100)]
    assert max(len(one) for one in api.sent_ids) <= 40
    assert {one.path for one in api.requests} == {"/v1/feedback:batch"}


def test_it_is_sent_by_number_without_a_flush(api, make_client) -> None:
    client = make_client(api.url, send_after_s=60.0, send_after_items=3)
    for at in range(2):
        client.queue(feedback(f"f{at}"))
    time.sleep(0.1)
    assert api.requests == []
    client.queue(feedback("f2"))
    _wait_for(lambda: len(api.acknowledged) == 3)
    assert api.sent_ids == [["f0", "f1", "f2"]]


def test_it_is_sent_by_age_without_a_flush(api, make_client) -> None:
    client = make_client(api.url, send_after_s=0.1, send_after_items=1000)
    client.queue(feedback("f0"))
    _wait_for(lambda: api.acknowledged == ["f0"])


def test_a_batch_that_failed_is_sent_again_with_the_same_ids_before_others(
    api, make_client
) -> None:
    api.script.extend([BUSY, Reply(drops=True, stores=True), Reply(items={"f1": "retry"})])
    client = make_client(api.url, send_after_s=60.0, max_batch_items=3)
    for at in range(5):
        client.queue(feedback(f"f{at}"))
    assert client.flush()
    first = ["f0", "f1", "f2"]
    assert api.sent_ids == [first, first, first, ["f1", "f3", "f4"]]
    assert sorted(api.stored) == [f"f{at}" for at in range(5)]


def test_nothing_is_lost_while_the_api_is_down(api, make_client) -> None:
    client = make_client(api.url)
    client.queue(feedback("f0"))
    assert client.flush()
    api.stop()
    for at in range(1, 50):
        client.queue(feedback(f"f{at}"))
    assert not client.flush(timeout_s=0.3)
    api.start()
    _wait_for(lambda: client.num_queued == 0)
    assert api.acknowledged == [f"f{at}" for at in range(50)]
    assert client.close() == ()


def test_more_attempts_are_made_than_a_single_feedback_gets(api, make_client) -> None:
    api.script.extend([BUSY] * 20)
    client = make_client(api.url, attempts=1)
    client.queue(feedback("f0"))
    _wait_for(lambda: api.acknowledged == ["f0"])


def test_a_rejection_is_told_once_with_its_reason(api, make_client) -> None:
    api.script.append(Reply(items={"f1": "rejected", "f2": "retry"}))
    client = make_client(api.url, send_after_s=60.0)
    for at in range(3):
        client.queue(feedback(f"f{at}"))
    assert client.flush()
    (told,) = client.rejected
    assert (told.feedback.feedback_id, told.reason, told.problem) == ("f1", "said rejected", None)
    assert sorted(api.acknowledged) == ["f0", "f2"]


def test_a_wrong_key_rejects_what_is_queued_and_says_why(api, make_client) -> None:
    api.script.append(Reply(401))
    client = make_client(api.url, send_after_s=60.0)
    client.queue(feedback("f0"))
    assert client.flush()
    assert [told.problem.status for told in client.rejected] == [401]


def test_a_full_outbox_says_so_and_keeps_what_it_has(api, make_client) -> None:
    api.stop()
    client = make_client(api.url, max_queued=3, send_after_s=60.0)
    for at in range(3):
        client.queue(feedback(f"f{at}"))
    with pytest.raises(OutboxFullError, match="3 feedbacks"):
        client.queue(feedback("f3"))
    api.start()
    assert client.flush()
    client.queue(feedback("f3"))
    assert client.flush()
    assert api.acknowledged == [f"f{at}" for at in range(4)]


def test_a_full_outbox_can_wait_for_room(api, make_client) -> None:
    client = make_client(api.url, max_queued=2, queue_block_s=10.0, send_after_items=1)
    for at in range(20):
        client.queue(feedback(f"f{at}"))
    assert client.flush()
    assert api.acknowledged == [f"f{at}" for at in range(20)]
    api.stop()
    impatient = make_client(api.url, max_queued=1, queue_block_s=0.1)
    impatient.queue(feedback("g0"))
    started = time.monotonic()
    with pytest.raises(OutboxFullError):
        impatient.queue(feedback("g1"))
    assert time.monotonic() - started >= 0.1


def test_close_flushes_and_gives_back_what_it_could_not_send(api, make_client) -> None:
    client = make_client(api.url, send_after_s=60.0)
    client.queue(feedback("f0"))
    assert client.close() == ()
    assert api.acknowledged == ["f0"]
    api.stop()
    other = make_client(api.url, send_after_s=60.0)
    for at in range(3):
        other.queue(feedback(f"g{at}"))
    started = time.monotonic()
    unsent = other.close(timeout_s=0.2)
    assert time.monotonic() - started < 2.0
    assert [one.feedback_id for one in unsent] == ["g0", "g1", "g2"]
    assert other.unsent == list(unsent)


def test_close_does_not_wait_for_an_answer_that_does_not_come(api, make_client) -> None:
    api.choose = lambda _: time.sleep(1.5) or Reply(items={"f0": "rejected"})
    client = make_client(api.url)
    client.queue(feedback("f0"))
    _wait_for(lambda: api.requests)
    started = time.monotonic()
    (unsent,) = client.close(timeout_s=0.1)
    assert time.monotonic() - started < 1.2
    # What the API says afterwards is not told a second time.
    time.sleep(1.6)
    assert (unsent.feedback_id, client.rejected) == ("f0", [])


@pytest.mark.parametrize("seed", range(6))
def test_each_queued_item_ends_in_exactly_one_way(api, make_client, seed) -> None:
    rng = random.Random(seed)

    def choose(items):
        draw = rng.random()
        if draw < 0.45:
            kinds = ("accepted", "rejected", "retry", "retry")
            wrong = {one["feedback_id"]: rng.choice(kinds) for one in items if rng.random() < 0.5}
            return Reply(items={one: kind for one, kind in wrong.items() if kind != "accepted"})
        stores = rng.random() < 0.5
        others = (
            BUSY,
            Reply(drops=True, stores=stores),
            Reply(500, stores=stores),
            Reply(207, body=b"{", stores=stores),
            Reply(413),
        )
        return rng.choice(others)

    api.choose = choose
    client = make_client(api.url, max_batch_items=7, send_after_items=4)
    names = [f"f{at}" for at in range(60)]
    for name in names:
        client.queue(feedback(name))
    unsent = {one.feedback_id for one in client.close(timeout_s=rng.uniform(0.0, 0.6))}
    rejected = {told.feedback.feedback_id for told in client.rejected}
    assert len(client.rejected) == len(rejected)
    assert unsent.isdisjoint(rejected)
    assert set(names) - unsent - rejected <= set(api.acknowledged)
    assert unsent | rejected | set(api.acknowledged) == set(names)
