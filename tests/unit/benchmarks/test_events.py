import random

from benchmarks.ingest.events import make_interaction, make_stream, to_record
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FeedbackReceived, InteractionServed


def test_an_interaction_is_as_wide_as_declared() -> None:
    assert 2_700 < len(to_record(make_interaction(random.Random(1))).value) < 3_100


def test_every_interaction_has_one_feedback_and_a_hundredth_comes_twice() -> None:
    stream = make_stream(1000, seed=1)
    served = [decode(InteractionServed, one.value) for one in stream.interactions]
    given = [decode(FeedbackReceived, one.value) for one in stream.feedback]
    targets = {one.interaction_id for one in served}
    assert len(targets) == len({one.feedback_id for one in given}) == 1000
    assert {one.interaction_id for one in given} == targets
    assert stream.num_records == len(served) + len(given) == 2000 + stream.num_repeats
    assert stream.num_repeats == 20


def test_a_tenth_of_the_interactions_comes_after_all_others() -> None:
    stream = make_stream(1000, seed=1)
    order = list(dict.fromkeys(one.key for one in stream.interactions))
    asked_about = list(dict.fromkeys(one.key for one in stream.feedback))
    assert order[-100:] == asked_about[::10]
    assert order[:-100] == [key for key in asked_about if key not in set(order[-100:])]


def test_a_repeat_has_the_bytes_of_its_first() -> None:
    stream = make_stream(200, seed=1)
    for records in (stream.interactions, stream.feedback):
        assert len(set(records)) == 200
        assert len(records) == 202
