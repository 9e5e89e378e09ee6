"""From evidence to a verdict with its reasons. Pure.

Missing, unusable or too little evidence is a hold, never a pass. What is proven to be bad stops a
version before anything else is asked.
"""

from dataclasses import dataclass
from math import exp, isfinite

from gating.comparison import Comparison
from gating.guardrails import Guardrail, GuardrailState
from tidemill.contracts.lifecycle import Verdict

_MAX_SHOWN_LOG = 50.0


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no evidence to judge by, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, and why."""

    verdict: Verdict
    reasons: tuple[str, ...]
    is_over: bool = False
    """A hold that no further look will change: time is up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineEvidence:
    """What a version did on held-out tasks."""

    num_tasks: int
    score: float
    malformed_rate: float
    champion_score: float | None
    """On the same tasks; None = there is no champion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineRules:
    """What it must do."""

    min_tasks: int
    threshold: float
    margin: float
    max_malformed_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRules:
    """When a live comparison is over."""

    alpha: float
    """What the alpha ledger gave this canary."""
    alpha_harm: float
    alpha_sample_ratio: float
    min_pairs: int
    min_duration_s: float
    max_duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRules:
    """When a new champion is trusted."""

    alpha: float
    max_duration_s: float


def decide_offline(evidence: OfflineEvidence | Missing, rules: OfflineRules) -> Decision:
    """Judge a candidate by the offline suite; PROMOTE = it may meet users."""
    if isinstance(evidence, Missing):
        return Decision(Verdict.HOLD, (evidence.reason,))
    champion = evidence.champion_score
    figures = (evidence.score, evidence.malformed_rate, 0.0 if champion is None else champion)
    if not all(isfinite(figure) for figure in figures):
        return Decision(Verdict.HOLD, (f"a figure of the offline suite is not finite: {figures}",))
    if evidence.num_tasks < rules.min_tasks:
        return Decision(
            Verdict.HOLD,
            (f"{evidence.num_tasks} tasks are too few to judge by, {rules.min_tasks} are needed",),
        )
    faults = []
    if evidence.score < rules.threshold:
        faults.append(f"score {evidence.score:.3f} is below the threshold {rules.threshold:.3f}")
    if champion is not None and evidence.score < champion - rules.margin:
        faults.append(
            f"score {evidence.score:.3f} is below the champion's {champion:.3f} by more than "
            f"{rules.margin:.3f}"
        )
    if evidence.malformed_rate > rules.max_malformed_rate:
        faults.append(
            f"{evidence.malformed_rate:.1%} malformed, at most {rules.max_malformed_rate:.1%}"
        )
    if faults:
        return Decision(Verdict.REJECT, tuple(faults))
    return Decision(
        Verdict.PROMOTE,
        (f"score {evidence.score:.3f} on {evidence.num_tasks} tasks passes the offline suite",),
    )


def decide_canary(
    evidence: Comparison | Missing, rules: CanaryRules, *, duration_s: float
) -> Decision:
    """Judge a challenger by live feedback after some time in the canary."""
    is_late = duration_s >= rules.max_duration_s
    if isinstance(evidence, Missing):
        return _hold(evidence.reason, is_late=is_late)
    if evidence.worse.rejects(rules.alpha_harm):
        return Decision(
            Verdict.REJECT,
            (
                f"worse than the champion: lift {_signed(evidence.lift)} over "
                f"{evidence.num_pairs} pairs, e-value {_shown(evidence.worse.max_log_e_value)}",
            ),
        )
    broken = _describe(evidence.guardrails, GuardrailState.BROKEN)
    if broken:
        return Decision(Verdict.REJECT, broken)
    obstacles = _obstacles(evidence, rules, duration_s=duration_s)
    if obstacles:
        return _hold(*obstacles, is_late=is_late)
    return Decision(
        Verdict.PROMOTE,
        (
            f"better than the champion: lift {_signed(evidence.lift)} over {evidence.num_pairs} "
            f"pairs, e-value {_shown(evidence.better.max_log_e_value)} of {1 / rules.alpha:.0f}",
        ),
    )


def decide_champion(
    evidence: Comparison | Missing, rules: WatchRules, *, duration_s: float
) -> Decision:
    """Judge a new champion against the record of the one before it."""
    is_late = duration_s >= rules.max_duration_s
    if isinstance(evidence, Missing):
        return _hold(evidence.reason, is_late=is_late)
    faults = []
    if evidence.worse.rejects(rules.alpha):
        faults.append(
            f"worse than the champion before: {_signed(evidence.lift)} over "
            f"{evidence.num_pairs} pairs, e-value {_shown(evidence.worse.max_log_e_value)}"
        )
    faults += _describe(evidence.guardrails, GuardrailState.BROKEN)
    if faults:
        return Decision(Verdict.ROLL_BACK, tuple(faults))
    return _hold(f"no proof of harm in {evidence.num_pairs} pairs", is_late=is_late)


def _obstacles(evidence: Comparison, rules: CanaryRules, *, duration_s: float) -> tuple[str, ...]:
    ratio = evidence.sample_ratio
    obstacles = []
    if ratio.is_broken(rules.alpha_sample_ratio):
        obstacles.append(
            f"the arms' sizes {ratio.num_champion} : {ratio.num_challenger} contradict the "
            "declared share; nothing is comparable until assignment and join are right"
        )
    if evidence.num_pairs < rules.min_pairs:
        obstacles.append(f"{evidence.num_pairs} labelled pairs, {rules.min_pairs} are needed")
    if not evidence.better.rejects(rules.alpha):
        obstacles.append(
            f"not proven better: lift {_signed(evidence.lift)} over {evidence.num_pairs} pairs, "
            f"e-value {_shown(evidence.better.max_log_e_value)} of {1 / rules.alpha:.0f}"
        )
    if evidence.too_good.rejects(rules.alpha):
        obstacles.append(
            f"too good to be true: lift {_signed(evidence.lift)}; look at its answers, then use "
            "`tidemill releases promote --force` or let it expire"
        )
    if duration_s < rules.min_duration_s:
        obstacles.append(f"{duration_s:.0f} s of exposure, {rules.min_duration_s:.0f} are needed")
    obstacles += _describe(evidence.guardrails, GuardrailState.UNDECIDED)
    return tuple(obstacles)


def _hold(*reasons: str, is_late: bool) -> Decision:
    late = ("time is up",) if is_late else ()
    return Decision(Verdict.HOLD, (*reasons, *late), is_over=is_late)


def _describe(guardrails: tuple[Guardrail, ...], state: GuardrailState) -> tuple[str, ...]:
    return tuple(
        f"guardrail {rail.name} is {state}: champion {rail.champion:.3g}, challenger "
        f"{rail.challenger:.3g}, margin {rail.margin:.3g}, {rail.num_pairs} pairs"
        for rail in guardrails
        if rail.state is state
    )


def _signed(lift: float | None) -> str:
    return "unknown" if lift is None else f"{lift:+.3f}"


def _shown(log_e_value: float) -> str:
    return f"{exp(min(log_e_value, _MAX_SHOWN_LOG)):.3g}"
