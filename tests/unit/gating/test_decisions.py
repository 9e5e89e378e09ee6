from dataclasses import replace
from math import log, nan

import pytest

from gating.betting import EProcess
from gating.comparison import ArmFigures, Comparison, ComparisonPlan, compare_arms
from gating.decisions import (
    CanaryRules,
    Decision,
    Missing,
    OfflineEvidence,
    OfflineRules,
    WatchRules,
    decide_canary,
    decide_champion,
    decide_offline,
)
from gating.guardrails import Guardrail, GuardrailState
from gating.outcomes import ArmOutcomes
from gating.sample_ratio import SampleRatio
from tidemill.contracts.lifecycle import Verdict

OFFLINE = OfflineRules(min_tasks=50, threshold=0.6, margin=0.05, max_malformed_rate=0.2)
GOOD = OfflineEvidence(num_tasks=100, score=0.8, malformed_rate=0.1, champion_score=0.82)
CANARY = CanaryRules(
    alpha=0.05,
    alpha_harm=0.05,
    alpha_sample_ratio=0.001,
    min_pairs=50,
    min_duration_s=10.0,
    max_duration_s=100.0,
)
WATCH = WatchRules(alpha=0.01, max_duration_s=100.0)
NOTHING = EProcess(0.0, 0.0, 100)
PROOF = EProcess(log(100), log(200), 100)


def rail(state: GuardrailState) -> Guardrail:
    return Guardrail(
        name="malformed_rate",
        state=state,
        champion=0.01,
        challenger=0.02,
        margin=0.05,
        num_pairs=100,
        log_e_holds=4.0,
        log_e_broken=0.0,
    )


def arm(acceptance: float) -> ArmFigures:
    return ArmFigures(
        num_labelled=100,
        num_units=150,
        acceptance=acceptance,
        acceptance_low=0.4,
        acceptance_high=0.8,
    )


BETTER = Comparison(
    champion=arm(0.5),
    challenger=arm(0.65),
    num_pairs=100,
    lift=0.15,
    better=PROOF,
    worse=NOTHING,
    too_good=NOTHING,
    guardrails=(rail(GuardrailState.HOLDS),),
    sample_ratio=SampleRatio(150, 150, 0.0),
)


def canary(evidence: Comparison | Missing, duration_s: float = 50.0) -> Decision:
    return decide_canary(evidence, CANARY, duration_s=duration_s)


def test_a_good_candidate_passes_offline() -> None:
    decision = decide_offline(GOOD, OFFLINE)
    assert decision.verdict is Verdict.PROMOTE
    assert "0.800 on 100 tasks" in decision.reasons[0]
    first = decide_offline(replace(GOOD, champion_score=None), OFFLINE)
    assert first.verdict is Verdict.PROMOTE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"score": 0.59, "champion_score": None}, "below the threshold 0.600"),
        ({"score": 0.7, "champion_score": 0.76}, "below the champion's 0.760"),
        ({"malformed_rate": 0.21}, "21.0% malformed, at most 20.0%"),
    ],
)
def test_a_poor_candidate_is_rejected_offline(change: dict[str, float], reason: str) -> None:
    decision = decide_offline(replace(GOOD, **change), OFFLINE)
    assert decision.verdict is Verdict.REJECT
    assert reason in decision.reasons[0]


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (Missing("no suite"), "no suite"),
        (replace(GOOD, score=nan), "not finite"),
        (replace(GOOD, champion_score=nan), "not finite"),
        (replace(GOOD, malformed_rate=nan), "not finite"),
        (replace(GOOD, num_tasks=49), "49 tasks are too few"),
    ],
)
def test_offline_evidence_that_is_missing_holds(
    evidence: OfflineEvidence | Missing, reason: str
) -> None:
    decision = decide_offline(evidence, OFFLINE)
    assert decision.verdict is Verdict.HOLD
    assert reason in decision.reasons[0]


def test_a_proven_lift_promotes() -> None:
    decision = canary(BETTER)
    assert decision == Decision(
        Verdict.PROMOTE,
        ("better than the champion: lift +0.150 over 100 pairs, e-value 200 of 20",),
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"better": NOTHING, "lift": None}, "not proven better: lift unknown"),
        ({"num_pairs": 49}, "49 labelled pairs, 50 are needed"),
        ({"sample_ratio": SampleRatio(200, 100, 9.0)}, "200 : 100 contradict"),
        ({"too_good": PROOF}, "too good to be true"),
        ({"guardrails": (rail(GuardrailState.UNDECIDED),)}, "malformed_rate is undecided"),
    ],
)
def test_anything_open_holds_even_with_a_proven_lift(
    change: dict[str, object], reason: str
) -> None:
    decision = canary(replace(BETTER, **change))  # type: ignore[arg-type]
    assert decision.verdict is Verdict.HOLD
    assert not decision.is_over
    assert any(reason in text for text in decision.reasons)


def test_a_short_exposure_holds() -> None:
    assert "9 s of exposure" in canary(BETTER, duration_s=9.0).reasons[0]


def test_no_evidence_holds_and_time_ends_it() -> None:
    assert canary(Missing("nobody came")) == Decision(Verdict.HOLD, ("nobody came",))
    over = canary(Missing("nobody came"), duration_s=100.0)
    assert over.is_over
    assert over.verdict is Verdict.HOLD
    assert over.reasons[-1] == "time is up"


def test_a_proven_lift_still_promotes_at_the_last_moment() -> None:
    assert canary(BETTER, duration_s=1000.0).verdict is Verdict.PROMOTE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"worse": PROOF, "lift": -0.2}, "worse than the champion: lift -0.200"),
        ({"guardrails": (rail(GuardrailState.BROKEN),)}, "malformed_rate is broken"),
    ],
)
def test_proof_of_harm_rejects_before_anything_else(change: dict[str, object], reason: str) -> None:
    for more in ({}, {"num_pairs": 1}, {"sample_ratio": SampleRatio(200, 100, 9.0)}):
        decision = canary(replace(BETTER, **change, **more))  # type: ignore[arg-type]
        assert decision.verdict is Verdict.REJECT
        assert reason in decision.reasons[0]


def test_a_champion_stays_without_proof_and_leaves_with_it() -> None:
    stays = decide_champion(BETTER, WATCH, duration_s=1.0)
    assert stays == Decision(Verdict.HOLD, ("no proof of harm in 100 pairs",))
    assert decide_champion(BETTER, WATCH, duration_s=100.0).is_over
    missing = decide_champion(Missing("no record"), WATCH, duration_s=1.0)
    assert missing == Decision(Verdict.HOLD, ("no record",))
    both = replace(BETTER, worse=PROOF, guardrails=(rail(GuardrailState.BROKEN),))
    leaves = decide_champion(both, WATCH, duration_s=1.0)
    assert leaves.verdict is Verdict.ROLL_BACK
    assert len(leaves.reasons) == 2


def test_arms_become_a_comparison() -> None:
    plan = ComparisonPlan(
        share=0.5,
        min_lift=0.0,
        max_lift=0.5,
        harm_margin=0.0,
        malformed_margin=0.05,
        length_tolerance=0.5,
        length_cap=80,
        alpha_guardrails=0.05,
    )
    champion = ArmOutcomes((0.0, 1.0) * 50, (0.0,) * 120, (20.0,) * 110, 130)
    challenger = ArmOutcomes((1.0,) * 99, (0.0,) * 120, (22.0,) * 110, 128)
    comparison = compare_arms(champion, challenger, plan)
    assert comparison.num_pairs == 99
    assert comparison.lift == pytest.approx(50 / 99)
    assert comparison.champion.acceptance == 0.5
    assert comparison.better.rejects(0.05)
    assert {r.state for r in comparison.guardrails} == {GuardrailState.HOLDS}
    assert comparison.to_json()["sample_ratio"]["num_champion"] == 130
    empty = compare_arms(ArmOutcomes((), (), (), 0), challenger, plan)
    assert (empty.num_pairs, empty.lift, empty.champion.acceptance) == (0, None, None)
    assert decide_canary(empty, CANARY, duration_s=50.0).verdict is Verdict.HOLD
