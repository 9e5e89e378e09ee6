"""The step with users: one look at the running canary."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from gating.comparison import Comparison, ComparisonPlan, compare_arms
from gating.context import GateContext
from gating.decisions import CanaryRules, Decision, Missing, decide_canary
from gating.outcomes import gather
from gating.settings import GatingSettings
from tidemill.contracts.events import Arm
from tidemill.contracts.lifecycle import Verdict
from tidemill.registry import Canary, PolicyRegistry
from tidemill.storage.evidence import (
    Window,
    fetch_first_served,
    fetch_horizon,
    fetch_outcomes,
)
from tidemill.storage.gate_runs import CANARY, OFFLINE

_log = logging.getLogger(__name__)

_DEFAULT_LENGTH_CAP = 1024
_CAP_FACTOR = 4


@dataclass(slots=True)
class CanaryStep:
    """Looks at the canary and acts on what is proven."""

    context: GateContext

    def look(self) -> str | None:
        """Look once; return what happened, None when no canary runs."""
        registry = self.context.registry
        canary = next((c for c in registry.canaries() if c.ended_at is None), None)
        if canary is None:
            return None
        moment = self.context.now()
        duration_s = (moment - canary.started_at).total_seconds()
        plan = self._plan(canary)
        rules = self._rules(canary)
        evidence, seen = self._read(canary, plan, moment=moment)
        decision = decide_canary(evidence, rules, duration_s=duration_s)
        stored = {**seen, "rules": asdict(rules), "plan": asdict(plan), "duration_s": duration_s}
        self._act(canary, decision, evidence, stored)
        return f"{canary.challenger} canary: {decision.verdict}, {'; '.join(decision.reasons)}"

    def _act(
        self,
        canary: Canary,
        decision: Decision,
        evidence: Comparison | Missing,
        stored: dict[str, Any],
    ) -> None:
        registry, version = self.context.registry, canary.challenger
        why = self.context.why(CANARY, decision, stored)
        log_e_value = evidence.better.max_log_e_value if isinstance(evidence, Comparison) else None
        if decision.verdict is Verdict.PROMOTE:
            registry.promote(version, why=why, log_e_value=log_e_value)
        elif decision.verdict is Verdict.REJECT:
            registry.reject(version, why=why, log_e_value=log_e_value)
        elif decision.is_over:
            registry.supersede(version, why=why, log_e_value=log_e_value)
        else:
            self.context.note_hold(version, CANARY, decision, stored)
            return
        _log.info("%s canary: %s, %s", version, decision.verdict, decision.reasons)

    def _read(
        self, canary: Canary, plan: ComparisonPlan, *, moment: datetime
    ) -> tuple[Comparison | Missing, dict[str, Any]]:
        registry = self.context.registry
        latest = moment - timedelta(seconds=self.context.settings.canary.settle_s)
        model, tenant = registry.model, registry.tenant
        challenger = Window(
            version=canary.challenger, arms=(Arm.CHALLENGER,), model=model, tenant=tenant
        )
        with registry.database.reading() as session:
            # Until the first replica follows the registry, everybody meets the champion.
            begun_at = fetch_first_served(session, challenger)
            if begun_at is None:
                return Missing("the challenger has served nobody yet"), {}
            horizon = fetch_horizon(session, latest=latest, model=model, tenant=tenant)
            arms = [
                fetch_outcomes(
                    session,
                    Window(
                        version=version,
                        arms=(arm,),
                        after=begun_at,
                        closed_until=horizon,
                        randomised=True,
                        model=model,
                        tenant=tenant,
                    ),
                )
                for version, arm in (
                    (canary.champion, Arm.CHAMPION),
                    (canary.challenger, Arm.CHALLENGER),
                )
            ]
        seen = {"after": begun_at.isoformat(), "closed_until": horizon.isoformat()}
        try:
            comparison = compare_arms(gather(arms[0]), gather(arms[1]), plan)
        except ValueError as error:
            return Missing(f"the evidence cannot be used: {error}"), seen
        return comparison, {**seen, "comparison": comparison.to_json()}

    def _plan(self, canary: Canary) -> ComparisonPlan:
        settings = self.context.settings
        return ComparisonPlan(
            share=canary.share,
            min_lift=settings.canary.min_lift,
            max_lift=settings.canary.max_lift,
            harm_margin=max(0.0, -settings.canary.min_lift),
            malformed_margin=settings.guardrails.malformed_margin,
            length_tolerance=settings.guardrails.length_tolerance,
            length_cap=find_length_cap(self.context.registry, canary.champion, settings),
            alpha_guardrails=settings.guardrails.alpha,
        )

    def _rules(self, canary: Canary) -> CanaryRules:
        settings = self.context.settings.canary
        return CanaryRules(
            alpha=canary.alpha,
            alpha_harm=settings.alpha_harm,
            alpha_sample_ratio=settings.alpha_sample_ratio,
            min_pairs=settings.min_pairs,
            min_duration_s=settings.min_duration_s,
            max_duration_s=settings.max_duration_s,
        )


def find_length_cap(registry: PolicyRegistry, version: str, settings: GatingSettings) -> int:
    """Return the length that counts as longest: known before the comparison begins."""
    if settings.guardrails.length_cap is not None:
        return settings.guardrails.length_cap
    for stored in reversed(registry.decisions(version)):
        mean_tokens = stored.run.evidence.get("mean_tokens")
        if stored.run.stage == OFFLINE and isinstance(mean_tokens, float) and mean_tokens > 0:
            return max(1, round(_CAP_FACTOR * mean_tokens))
    return _DEFAULT_LENGTH_CAP
