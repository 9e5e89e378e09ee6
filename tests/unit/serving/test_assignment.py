import hashlib
import hmac

import pytest

from serving.assignment import assign, compute_position
from tidemill.contracts.events import Arm


def test_position_is_the_first_53_bits_of_the_keyed_hash() -> None:
    digest = hmac.new(b"salt", b"ada", hashlib.sha256).digest()
    expected = (int.from_bytes(digest, "big") >> (256 - 53)) / 2**53

    assert compute_position("ada", salt="salt") == expected
    assert 0 <= expected < 1


def test_assignment_is_sticky_and_a_new_salt_shuffles() -> None:
    units = [f"unit {number}" for number in range(2000)]
    arms = [assign(unit, salt="a", challenger_share=0.5).arm for unit in units]

    assert arms == [assign(unit, salt="a", challenger_share=0.5).arm for unit in units]
    moved = sum(
        arm is not assign(unit, salt="b", challenger_share=0.5).arm
        for arm, unit in zip(arms, units, strict=True)
    )
    assert 800 < moved < 1200


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_of_units_is_the_declared_one(share: float) -> None:
    found = [assign(f"unit {n}", salt="s", challenger_share=share) for n in range(4000)]
    num_challenger = sum(assignment.arm is Arm.CHALLENGER for assignment in found)

    assert abs(num_challenger / 4000 - share) < 0.03
    for assignment in found:
        expected = share if assignment.arm is Arm.CHALLENGER else 1 - share
        assert assignment.probability == pytest.approx(expected)


def test_a_growing_share_only_adds_units() -> None:
    units = [f"unit {number}" for number in range(500)]
    small = {u for u in units if assign(u, salt="s", challenger_share=0.2).arm is Arm.CHALLENGER}
    large = {u for u in units if assign(u, salt="s", challenger_share=0.4).arm is Arm.CHALLENGER}

    assert small < large


def test_the_ends_leave_no_chance() -> None:
    assert assign("u", salt="s", challenger_share=0).arm is Arm.CHAMPION
    assert assign("u", salt="s", challenger_share=1).arm is Arm.CHALLENGER


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="challenger_share"):
        assign("u", salt="s", challenger_share=share)
