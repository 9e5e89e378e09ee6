"""Invariant 6: no promotion on missing, NaN or too little evidence: that is a hold.

False promotions stay under the declared alpha at any number of looks, and over the stream of
releases.
"""

from itertools import product
from math import inf, nan
from random import Random

import numpy as np
import pytest

from gating.alpha_ledger import allocate_alpha
from gating.betting import bet_against_at_most
from gating.comparison import ComparisonPlan, compare_arms
from gating.context import GateContext
from gating.decisions import (
    CanaryRules,
    Missing,
    OfflineEvidence,
    OfflineRules,
    decide_canary,
    decide_offline,
)
from gating.gate import Gate
from gating.outcomes import ArmOutcomes
from gating.settings import CanarySettings, GatingSettings
from gating.suite import SuiteResult
from tests.live_traffic import LiveTraffic
from tidemill.contracts.events import Arm
from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import PolicyStatus, Verdict
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.storage.database import Database

PLAN = ComparisonPlan(
    share=0.5,
    min_lift=0.0,
    max_lift=0.9,
    harm_margin=0.0,
    malformed_margin=0.1,
    length_tolerance=0.5,
    length_cap=80,
    alpha_guardrails=0.05,
)


def rules(alpha: float) -> CanaryRules:
    return CanaryRules(
        alpha=alpha,
        alpha_harm=0.05,
        alpha_sample_ratio=0.001,
        min_pairs=30,
        min_duration_s=0.0,
        max_duration_s=1e9,
    )


def arm(acceptance: list[float]) -> ArmOutcomes:
    count = len(acceptance)
    return ArmOutcomes(tuple(acceptance), (0.0,) * 200, (20.0,) * 200, max(200, count))


@pytest.mark.parametrize(
    ("score", "malformed", "champion"),
    [case for case in product((0.9, nan, inf, -inf), repeat=3) if case != (0.9, 0.9, 0.9)],
)
def test_offline_figures_that_are_no_numbers_hold(
    score: float, malformed: float, champion: float
) -> None:
    evidence = OfflineEvidence(
        num_tasks=200, score=score, malformed_rate=malformed, champion_score=champion
    )
    rules = OfflineRules(min_tasks=50, threshold=0.0, margin=1.0, max_malformed_rate=1.0)
    assert decide_offline(evidence, rules).verdict is Verdict.HOLD


@pytest.mark.parametrize("value", [nan, inf, -0.1, 1.1])
def test_live_outcomes_that_are_no_rewards_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]|\[-1, 1\]"):
        compare_arms(arm([0.0] * 100), arm([1.0] * 99 + [value]), PLAN)


@pytest.mark.parametrize("num_pairs", [0, 1, 5, 29])
def test_too_little_holds_even_when_every_pair_is_won(num_pairs: int) -> None:
    comparison = compare_arms(arm([0.0] * num_pairs), arm([1.0] * num_pairs), PLAN)
    assert decide_canary(comparison, rules(0.5), duration_s=1.0).verdict is Verdict.HOLD
    assert decide_canary(Missing("nothing"), rules(0.5), duration_s=1.0).verdict is Verdict.HOLD


def test_one_arm_without_feedback_holds() -> None:
    comparison = compare_arms(arm([]), arm([1.0] * 500), PLAN)
    assert decide_canary(comparison, rules(0.5), duration_s=1.0).verdict is Verdict.HOLD


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_false_promotions_stay_under_alpha_at_a_look_after_every_ten_pairs(rate: float) -> None:
    random = np.random.default_rng(11)
    alpha, streams, looks = 0.1, 500, 40
    false = 0
    for _ in range(streams):
        champion = (random.random(10 * looks) < rate).astype(float)
        challenger = (random.random(10 * looks) < rate).astype(float)
        # The test may stop at its highest value, so the last look stands for all of them.
        false += bet_against_at_most(challenger - champion).rejects(alpha)
    assert false / streams <= alpha + 1.645 * (alpha * (1 - alpha) / streams) ** 0.5


def test_a_stream_of_equal_releases_promotes_at_most_alpha(database: Database) -> None:
    """The real gate on real rows: 6 candidates, none better than the champion."""
    chance = Random(12)
    traffic = LiveTraffic(database, settle_s=10.0)
    registry = PolicyRegistry(database, model="tide", tenant="default", now=traffic.clock)
    canary = CanarySettings(share=0.5, alpha=0.05, min_pairs=10, max_duration_s=150.0)
    context = GateContext(registry, GatingSettings(canary=canary), now=traffic.clock)
    gate = Gate(context, _measure)
    for number in range(7):
        _publish(registry)
        gate.run_once()
        state = registry.traffic()
        while number and registry.challenger() is not None:
            for version, side in (
                (state.champion, Arm.CHAMPION),
                (state.challenger, Arm.CHALLENGER),
            ):
                assert version is not None
                traffic.serve(version, side, [float(chance.random() < 0.6) for _ in range(50)])
            gate.run_once()
    canaries = registry.canaries()
    assert len(canaries) == 6
    assert [c.verdict for c in canaries if c.verdict is Verdict.PROMOTE] == []
    assert sum(c.alpha for c in canaries) <= 0.05
    assert canaries[3].alpha == allocate_alpha(alpha=0.05, number=4, num_promoted=0)
    assert len(registry.list(PolicyStatus.CHAMPION)) == 1


def _measure(version: str) -> SuiteResult:
    del version
    return SuiteResult(suite={}, num_tasks=200, score=0.8, malformed_rate=0.0, mean_tokens=20.0)


def _publish(registry: PolicyRegistry) -> None:
    number = registry.next_number()
    digest = f"{number:012x}" + "0" * 52
    version = str(PolicyVersion.of(number, digest))
    registry.register(PolicyRecord(version=version, digest=digest, base_digest="b" * 64))
