from dataclasses import replace

import pytest

from examples.command_assistant.demo_settings import SMOLLM2, TINY
from examples.command_assistant.demo_summary import Figures, Versions, judge, summary

GOOD = Figures(
    seed=1,
    base="tiny",
    wall_s=290.0,
    requests=6000,
    failed_requests=0,
    feedback_sent=3000,
    feedback_events_trained=2500,
    acceptance_before=0.4,
    acceptance_after=0.85,
    versions=Versions(published=9, promoted=3, rejected=2, rolled_back=1),
    max_swap_pause_ms=10.0,
    in_flight_at_swap_min=9,
    ledger_balanced=True,
)


def missed(figures: Figures) -> list[str]:
    return [goal.name for goal in judge(figures, TINY) if not goal.met]


def test_a_good_run_misses_nothing() -> None:
    assert missed(GOOD) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"acceptance_before": 0.55}, "acceptance_before"),
        ({"acceptance_before": 0.2}, "acceptance_before"),
        ({"acceptance_after": 0.79}, "acceptance_after"),
        ({"failed_requests": 1}, "failed_requests"),
        ({"ledger_balanced": False}, "ledger_balanced"),
        ({"wall_s": 300.1}, "wall_s"),
        ({"in_flight_at_swap_min": 7}, "in_flight_at_swap_min"),
        ({"in_flight_at_swap_min": None}, "in_flight_at_swap_min"),
        ({"versions": replace(GOOD.versions, promoted=2)}, "versions promoted"),
        ({"versions": replace(GOOD.versions, rejected=0)}, "versions rejected"),
        ({"versions": replace(GOOD.versions, rolled_back=0)}, "versions rolled back"),
    ],
)
def test_each_goal_can_be_missed(change: dict[str, object], name: str) -> None:
    assert missed(replace(GOOD, **change)) == [name]  # type: ignore[arg-type]


def test_a_pretrained_base_is_judged_by_its_gain() -> None:
    figures = replace(GOOD, base="smollm2", acceptance_before=0.1, acceptance_after=0.29)
    assert [goal.name for goal in judge(figures, SMOLLM2) if not goal.met] == ["acceptance gain"]


def test_the_summary_has_the_fields_that_others_read() -> None:
    document = summary(GOOD, judge(GOOD, TINY))
    assert document["versions"] == {"published": 9, "promoted": 3, "rejected": 2, "rolled_back": 1}
    assert set(document) == {
        *("seed", "base", "wall_s", "requests", "failed_requests", "feedback_sent"),
        *("feedback_events_trained", "acceptance_before", "acceptance_after", "versions"),
        *("max_swap_pause_ms", "in_flight_at_swap_min", "ledger_balanced", "goals"),
    }
    assert all(set(goal) == {"name", "value", "target", "met"} for goal in document["goals"])
