import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.feedback_clients import feedback
from tidemill.client.answers import ItemResult, Status
from tidemill.client.delivery import Round
from tidemill.client.options import Options
from tidemill.client.outbox import Outbox, unknown
from tidemill.errors import InvalidRecordError, OutboxFullError


def _outbox(**over) -> Outbox:
    given = {"backoff_first_s": 1.0, "send_after_items": 3, "send_after_s": 10.0}
    return Outbox(options=Options(**given | over), draw=lambda: 0.5)


def _round(items, *statuses: Status, retry_after_s: float | None = None) -> Round:
    pairs = zip(items, statuses, strict=True)
    return Round(
        [ItemResult(one.feedback_id, status, "why") for one, status in pairs], retry_after_s
    )


def _ids(items) -> list[str]:
    return [one.feedback_id for one in items]


def test_a_batch_is_due_by_number_or_by_age() -> None:
    outbox = _outbox()
    assert outbox.compute_wait_s(0.0) is None
    outbox.add(feedback("f0"), 0.0)
    outbox.add(feedback("f1"), 4.0)
    assert outbox.compute_wait_s(4.0) == 6.0
    assert outbox.compute_wait_s(10.0) == 0.0
    outbox.add(feedback("f2"), 4.0)
    assert outbox.compute_wait_s(4.0) == 0.0


def test_what_is_sent_again_stands_first_in_its_old_order() -> None:
    outbox = _outbox(max_batch_items=3)
    for at in range(5):
        outbox.add(feedback(f"f{at}"), 0.0)
    batch = outbox.take()
    outbox.settle(_round(batch, Status.RETRY, Status.ACCEPTED, Status.RETRY), 0.0)
    assert _ids(outbox.take()) == ["f0", "f2", "f3"]


def test_a_failure_makes_all_wait_and_a_success_ends_that() -> None:
    outbox = _outbox()
    for at in range(4):
        outbox.add(feedback(f"f{at}"), 0.0)
    outbox.settle(unknown(outbox.take(), "down"), 100.0)
    assert outbox.compute_wait_s(100.0) == 0.5
    outbox.settle(unknown(outbox.take(), "down"), 101.0)
    assert outbox.compute_wait_s(101.0) == 1.0
    batch = outbox.take()
    outbox.settle(_round(batch, *[Status.ACCEPTED] * 4), 102.0)
    for at in range(4, 7):
        outbox.add(feedback(f"f{at}"), 102.0)
    assert outbox.compute_wait_s(102.0) == 0.0


def test_batches_that_fail_as_a_whole_get_smaller_and_larger_again() -> None:
    outbox = _outbox(max_batch_items=16, send_after_items=1)
    for at in range(64):
        outbox.add(feedback(f"f{at}"), 0.0)
    sizes = []
    for _ in range(12):
        batch = outbox.take()
        sizes.append(len(batch))
        # As an API that has room for 6 and no more.
        status = Status.ACCEPTED if len(batch) <= 6 else Status.RETRY
        outbox.settle(_round(batch, *[status] * len(batch)), 0.0)
    assert sizes == [16, 16, 16, 8, 4, 8, 8, 8, 4, 8, 8, 8]


def test_to_hurry_shortens_a_backoff_but_not_what_the_api_asked_for() -> None:
    outbox = _outbox(backoff_max_s=1000.0)
    outbox.add(feedback("f0"), 0.0)
    for _ in range(10):
        outbox.settle(unknown(outbox.take(), "down"), 0.0)
    assert outbox.compute_wait_s(0.0) == 256.0
    outbox.hurry(0.0)
    assert outbox.compute_wait_s(0.0) == 0.5
    found = _round(outbox.take(), Status.RETRY, retry_after_s=30.0)
    outbox.settle(found, 0.0)
    outbox.hurry(0.0)
    assert outbox.compute_wait_s(0.0) == 30.5


def test_all_that_was_inside_is_settled_only_when_rejections_were_told() -> None:
    outbox = _outbox()
    outbox.add(feedback("f0"), 0.0)
    mark = outbox.hurry(0.0)
    outbox.add(feedback("f1"), 0.0)
    assert not outbox.is_settled(mark)
    batch = outbox.take()
    assert not outbox.is_settled(mark)
    rejections = outbox.settle(_round(batch, Status.REJECTED, Status.RETRY), 0.0)
    assert [(one.feedback.feedback_id, one.reason) for one in rejections] == [("f0", "why")]
    assert not outbox.is_settled(mark)
    outbox.told()
    assert outbox.is_settled(mark)
    assert not outbox.is_settled(outbox.hurry(0.0))


def test_room_is_bounded_by_number_and_by_bytes() -> None:
    outbox = _outbox(max_queued=2)
    outbox.add(feedback("f0"), 0.0)
    outbox.take()
    outbox.add(feedback("f1"), 0.0)
    with pytest.raises(OutboxFullError, match="2 feedbacks"):
        outbox.add(feedback("f2"), 0.0)
    size = len(feedback("f0").encoded)
    small = _outbox(max_queued_bytes=2 * size, max_batch_bytes=2 * size)
    small.add(feedback("f0"), 0.0)
    small.add(feedback("f1"), 0.0)
    assert not small.has_room(feedback("f2"))
    small.settle(_round(small.take()[:1], Status.ACCEPTED), 0.0)
    assert small.has_room(feedback("f2"))


def test_what_fits_no_request_is_refused_at_once() -> None:
    size = len(feedback("f0").encoded)
    with pytest.raises(InvalidRecordError, match=f"{size} bytes"):
        _outbox(max_batch_bytes=size).add(feedback("f0"), 0.0)


def test_what_is_answered_after_the_end_is_nobodys() -> None:
    outbox = _outbox()
    outbox.add(feedback("f0"), 0.0)
    outbox.add(feedback("f1"), 0.0)
    batch = outbox.take()
    assert _ids(outbox.give_up()) == ["f0", "f1"]
    assert outbox.settle(_round(batch, Status.REJECTED, Status.RETRY), 0.0) == []
    outbox.put_back()
    assert len(outbox) == 0


def test_a_batch_of_which_nothing_is_known_is_put_back() -> None:
    outbox = _outbox()
    for at in range(3):
        outbox.add(feedback(f"f{at}"), 0.0)
    outbox.take()
    outbox.put_back()
    assert _ids(outbox.take()) == ["f0", "f1", "f2"]


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1, 7))
def test_whatever_goes_in_comes_out_once(seed, count, size) -> None:
    rng = random.Random(seed)
    outbox = _outbox(max_batch_items=size)
    out = []
    names = [f"f{at}" for at in range(count)]
    for name in names:
        outbox.add(feedback(name), 0.0)
        if rng.random() < 0.4:
            batch = outbox.take()
            statuses = [rng.choice(list(Status)) for _ in batch]
            told = outbox.settle(_round(batch, *statuses), 0.0)
            outbox.told()
            done = [one for one, status in zip(batch, statuses, strict=True) if status != "retry"]
            rejected = [one for one in done if one in [rejection.feedback for rejection in told]]
            assert len(rejected) == statuses.count(Status.REJECTED)
            out += _ids(done)
    left = _ids(outbox.give_up())
    assert left == sorted(left, key=names.index)
    assert sorted(out + left) == sorted(names)
