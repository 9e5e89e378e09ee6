from gating.queue import choose_candidate, superseded_by
from tidemill.registry import PolicyRecord


def candidate(number: int, **provenance: str) -> PolicyRecord:
    digest = f"{number:012x}" + "0" * 52
    return PolicyRecord(
        version=f"v{number}-{digest[:12]}",
        digest=digest,
        base_digest="b" * 64,
        provenance=dict(provenance),
    )


def test_nobody_waits() -> None:
    assert choose_candidate([]) is None


def test_a_maker_is_represented_by_its_newest() -> None:
    old, new = candidate(3, learner="tide"), candidate(5, learner="tide")
    assert choose_candidate([new, old]) is new
    assert superseded_by(new, [new, old]) == [old]


def test_a_busy_learner_does_not_starve_the_others() -> None:
    drill = candidate(4, origin="drill")
    busy = [candidate(3, learner="tide"), candidate(5, learner="tide")]
    assert choose_candidate([*busy, drill]) is drill
    assert superseded_by(drill, busy) == []


def test_what_is_on_hold_makes_room() -> None:
    old, new = candidate(3, learner="tide"), candidate(5, learner="tide")
    assert choose_candidate([old, new], waiting=[new.version]) is old
