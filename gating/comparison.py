"""One live comparison of two arms: lift, harm, guardrails, sample ratio. Pure."""

from dataclasses import asdict, dataclass
from typing import Any

from gating.betting import EProcess, bet_against_at_most, compute_interval
from gating.guardrails import Guardrail, LengthRule, check_length, check_malformed
from gating.outcomes import ArmOutcomes
from gating.pairing import pair_outcomes
from gating.sample_ratio import SampleRatio, check_sample_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonPlan:
    """How two arms are compared; fixed before anything is seen."""

    share: float
    """The challenger's share of subjects."""
    min_lift: float
    max_lift: float
    harm_margin: float
    """A loss up to this is no harm."""
    malformed_margin: float
    length_tolerance: float
    length_cap: int
    alpha_guardrails: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFigures:
    """What a page shows of one arm."""

    num_labelled: int
    num_units: int
    acceptance: float | None
    acceptance_low: float
    acceptance_high: float

    @classmethod
    def of(cls, outcomes: ArmOutcomes) -> "ArmFigures":
        """Return the figures of an arm; the interval is right at every look (95 %)."""
        values = outcomes.acceptance
        low, high = compute_interval(values)
        return cls(
            num_labelled=len(values),
            num_units=outcomes.num_units,
            acceptance=sum(values) / len(values) if values else None,
            acceptance_low=low,
            acceptance_high=high,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Everything that a verdict on live traffic is computed from."""

    champion: ArmFigures
    challenger: ArmFigures
    num_pairs: int
    lift: float | None
    """Mean paired difference; None without pairs."""
    better: EProcess
    """Evidence that the lift is above `min_lift`."""
    worse: EProcess
    """Evidence that the loss is above `harm_margin`."""
    too_good: EProcess
    """Evidence that the lift is above `max_lift`."""
    guardrails: tuple[Guardrail, ...]
    sample_ratio: SampleRatio

    def to_json(self) -> dict[str, Any]:
        """Return the figures for the decision's row."""
        return asdict(self)


def compare_arms(
    champion: ArmOutcomes, challenger: ArmOutcomes, plan: ComparisonPlan
) -> Comparison:
    """Weigh a challenger's outcomes against the champion's.

    Raises:
        ValueError: an outcome is out of range or NaN.
    """
    pairs = pair_outcomes(champion.acceptance, challenger.acceptance, share=plan.share)
    malformed = pair_outcomes(champion.malformed, challenger.malformed, share=plan.share)
    alpha = plan.alpha_guardrails
    rule = LengthRule(cap=plan.length_cap, tolerance=plan.length_tolerance, alpha=alpha)
    return Comparison(
        champion=ArmFigures.of(champion),
        challenger=ArmFigures.of(challenger),
        num_pairs=len(pairs),
        lift=float(pairs.differences.mean()) if len(pairs) else None,
        better=bet_against_at_most(pairs.differences, bound=plan.min_lift),
        worse=bet_against_at_most(-pairs.differences, bound=plan.harm_margin),
        too_good=bet_against_at_most(pairs.differences, bound=plan.max_lift),
        guardrails=(
            check_malformed(malformed, margin=plan.malformed_margin, alpha=alpha),
            *check_length(champion.num_tokens, challenger.num_tokens, share=plan.share, rule=rule),
        ),
        sample_ratio=check_sample_ratio(champion.num_units, challenger.num_units, share=plan.share),
    )
