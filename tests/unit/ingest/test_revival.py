import pytest

from ingest.joining import Claim, FeedbackState
from ingest.revival import Life, revive, settle_lives
from tests.ingest_rig import METRICS, seconds
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.repeats import Delivery

SPEC = parse_metrics(METRICS)
WAIT_S = 600


def claim(at: float = 0, offset: int = 0) -> Claim:
    return Claim(
        tenant="t",
        feedback_id="f",
        target_id="x",
        metric="accepted",
        rater=None,
        appended_at=seconds(at),
        partition=0,
        offset=offset,
        expires_at=seconds(at + WAIT_S),
        state=FeedbackState.PENDING,
    )


def life(served: list[float], repeats: list[float]) -> Life:
    deliveries = [Delivery(seconds(at), 0, number + 1) for number, at in enumerate(repeats)]
    lives = settle_lives(
        [claim()],
        [seconds(at) for at in served],
        SPEC,
        repeats={("t", "f"): deliveries},
        unmatched_after_s=WAIT_S,
    )
    return lives["t", "f"]


@pytest.mark.parametrize("at", [0, 300, WAIT_S])
def test_a_repeat_before_the_expiry_changes_nothing(at: float) -> None:
    assert revive(claim(), [Delivery(seconds(at), 0, 1)], unmatched_after_s=WAIT_S) is None


def test_the_first_repeat_after_the_expiry_begins_anew() -> None:
    repeats = [Delivery(seconds(at), 0, int(at)) for at in (900, 5, 700)]
    revived = revive(claim(), repeats, unmatched_after_s=WAIT_S)
    assert revived is not None
    assert (revived.offset, revived.appended_at) == (700, seconds(700))
    assert revived.expires_at == seconds(700 + WAIT_S)
    assert revived.state is FeedbackState.PENDING


@pytest.mark.parametrize(
    ("served", "repeats", "state", "num_outlived"),
    [
        # In time: the repeats are repeats.
        ([600], [700], "joined", 0),
        # After the expiry: dead, and again alive within the window of 60 s or late after it.
        ([601], [], "dead_lettered", 0),
        ([650], [700], "joined", 1),
        ([630], [700], "late", 1),
        # It expired twice (at 600 and at 1300) before its interaction came.
        ([1400], [700, 1350, 1360], "joined", 2),
        ([1400], [700], "dead_lettered", 1),
        ([], [700], "pending", 0),
    ],
)
def test_a_feedback_lives_from_the_record_that_had_something_to_wait_for(
    served: list[float], repeats: list[float], state: str, num_outlived: int
) -> None:
    found = life(served, repeats)
    assert (found.state.value, len(found.outlived)) == (state, num_outlived)
