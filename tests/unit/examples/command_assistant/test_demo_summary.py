import json
from dataclasses import replace

import pytest

from examples.command_assistant.demo_settings import SMOL, TINY, VARIANTS, write_settings
from examples.command_assistant.demo_summary import Figures, Versions, judge, summary
from tidemill.cli.settings import read_settings
from tidemill.rewards.metrics_file import load_metrics

GOOD = Figures(
    seed=1,
    base="tiny",
    wall_s=250.0,
    requests=9000,
    failed_requests=0,
    feedback_sent=3500,
    feedback_events_trained=2500,
    acceptance_before=0.4,
    acceptance_after=0.85,
    versions=Versions(published=12, promoted=3, rejected=2, rolled_back=1),
    max_swap_pause_ms=12.5,
    in_flight_at_swap_min=12,
    ledger_balanced=True,
)


def _missed(figures: Figures, variant=TINY) -> list[str]:
    return [goal.name for goal in judge(figures, variant) if not goal.met]


def test_a_good_run_meets_every_goal() -> None:
    assert _missed(GOOD) == []


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"acceptance_before": 0.29}, "acceptance_before"),
        ({"acceptance_before": 0.51}, "acceptance_before"),
        ({"acceptance_after": 0.79}, "acceptance_after"),
        ({"failed_requests": 1}, "failed_requests"),
        ({"ledger_balanced": False}, "ledger_balanced"),
        ({"wall_s": 300.5}, "wall_s"),
        ({"in_flight_at_swap_min": 7}, "in_flight_at_swap_min"),
        ({"in_flight_at_swap_min": None}, "in_flight_at_swap_min"),
        ({"versions": replace(GOOD.versions, promoted=2)}, "versions promoted"),
        ({"versions": replace(GOOD.versions, rejected=0)}, "versions rejected"),
        ({"versions": replace(GOOD.versions, rolled_back=0)}, "versions rolled back"),
    ],
)
def test_each_goal_can_be_missed_alone(change, name) -> None:
    assert _missed(replace(GOOD, **change)) == [name]


def test_the_pretrained_model_has_goals_of_its_own() -> None:
    slow = replace(
        GOOD,
        wall_s=2600.0,
        acceptance_before=0.25,
        acceptance_after=0.45,
        versions=Versions(published=3, promoted=1, rejected=0, rolled_back=0),
    )
    assert _missed(slow, SMOL) == []
    assert _missed(replace(slow, acceptance_after=0.44), SMOL) == ["acceptance gained"]
    assert _missed(replace(slow, wall_s=2701.0), SMOL) == ["wall_s"]
    none = replace(slow.versions, promoted=0)
    assert _missed(replace(slow, versions=none), SMOL) == ["versions promoted"]


def test_beside_servers_the_goal_is_the_longer_time() -> None:
    longer = TINY.beside_servers()
    assert _missed(replace(GOOD, wall_s=longer.limit_s), longer) == []
    assert _missed(replace(GOOD, wall_s=longer.limit_s + 0.1), longer) == ["wall_s"]


def test_the_summary_has_the_fields_that_others_read() -> None:
    document = json.loads(json.dumps(summary(GOOD, judge(GOOD, TINY))))
    assert list(document) == [
        "seed",
        "base",
        "wall_s",
        "requests",
        "failed_requests",
        "feedback_sent",
        "feedback_events_trained",
        "acceptance_before",
        "acceptance_after",
        "versions",
        "max_swap_pause_ms",
        "in_flight_at_swap_min",
        "ledger_balanced",
        "goals",
    ]
    assert set(document["versions"]) == {"published", "promoted", "rejected", "rolled_back"}
    assert all(set(goal) == {"name", "value", "target", "met"} for goal in document["goals"])


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_the_settings_written_are_ones_that_tidemill_takes(tmp_path, variant) -> None:
    settings = read_settings(write_settings(tmp_path, variant, seed=3))
    assert settings.backfill.seed == 3
    assert "accepted" in load_metrics(tmp_path / "metrics.toml").metrics
