import pytest

from gating.outcomes import gather
from tidemill.storage.evidence import ServedOutcome


def served(unit: str, state: str, reward: float | None = None, **over: object) -> ServedOutcome:
    fields = {
        "unit": unit,
        "state": state,
        "excluded_reason": None,
        "reward": reward,
        "num_tokens": None if reward is None else 20,
    }
    return ServedOutcome(**(fields | over))  # type: ignore[arg-type]


def test_each_subject_counts_once_with_its_first_label() -> None:
    outcomes = [
        served("a", "excluded", excluded_reason="silent"),
        served("a", "rewarded", 1.0),
        served("a", "rewarded", 0.0),
        served("b", "malformed", 0.0, num_tokens=40),
        served("b", "rewarded", 1.0),
        served("c", "defaulted", 0.5),
        served("d", "excluded", excluded_reason="no_consent"),
    ]
    arm = gather(outcomes)
    assert arm.acceptance == (1.0, 0.0)
    # a's first is silent and well formed, b's malformed, c's well formed; of d nothing is known.
    assert arm.malformed == (0.0, 1.0, 0.0)
    assert arm.num_tokens == (20.0, 40.0, 20.0)
    assert arm.num_units == 4


def test_a_label_without_a_reward_is_no_evidence() -> None:
    with pytest.raises(ValueError, match="no reward"):
        gather([served("a", "rewarded")])
