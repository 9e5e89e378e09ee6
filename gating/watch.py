"""The watch over a new champion, however it came there, against the record of the one before."""

import logging
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from gating.canary import find_length_cap
from gating.comparison import Comparison, ComparisonPlan, compare_arms
from gating.context import GateContext
from gating.decisions import Decision, Missing, WatchRules, decide_champion
from gating.outcomes import ArmOutcomes, gather
from tidemill.contracts.events import Arm
from tidemill.contracts.lifecycle import Move, Verdict
from tidemill.storage.evidence import Window, fetch_horizon, fetch_outcomes
from tidemill.storage.gate_runs import CHAMPION

_log = logging.getLogger(__name__)

_EQUAL_SHARE = 0.5
_ROWS_PER_PAIR = 20
"""Interactions read for each labelled subject: most users stay silent."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What one look at the champion showed."""

    is_trusted: bool
    """Whether a canary against it may begin."""
    summary: str | None = None


@dataclass(frozen=True, slots=True)
class _Reign:
    """How the champion came to be."""

    champion: str
    previous: str
    promoted_at: datetime


@dataclass(slots=True)
class WatchStep:
    """Looks at the champion and rolls back on proof of harm."""

    context: GateContext
    _record: tuple[_Reign, ArmOutcomes] | None = None
    """Of the champion before: complete once its last windows are over."""

    def look(self) -> Watched:
        """Look once."""
        reign = self._reign()
        if reign is None:
            return Watched(is_trusted=True)
        settings = self.context.settings.champion
        moment = self.context.now()
        duration_s = (moment - reign.promoted_at).total_seconds()
        if duration_s >= settings.max_duration_s:
            return Watched(is_trusted=True)
        plan = self._plan(reign)
        rules = WatchRules(alpha=settings.alpha, max_duration_s=settings.max_duration_s)
        evidence, seen = self._read(reign, plan, moment=moment)
        decision = decide_champion(evidence, rules, duration_s=duration_s)
        stored = {
            **seen,
            "previous": reign.previous,
            "rules": asdict(rules),
            "plan": asdict(plan),
            "duration_s": duration_s,
        }
        self._act(reign, decision, stored)
        num_pairs = evidence.num_pairs if isinstance(evidence, Comparison) else 0
        return Watched(
            is_trusted=decision.verdict is Verdict.ROLL_BACK
            or num_pairs >= settings.min_pairs
            or self._came_by_canary(reign.champion),
            summary=f"{reign.champion} watched: {decision.verdict}, {'; '.join(decision.reasons)}",
        )

    def _act(self, reign: _Reign, decision: Decision, stored: dict[str, Any]) -> None:
        if decision.verdict is not Verdict.ROLL_BACK:
            self.context.note_hold(reign.champion, CHAMPION, decision, stored)
            return
        why = self.context.why(CHAMPION, decision, stored)
        restored = self.context.registry.roll_back(why=why, expected=reign.champion)
        _log.warning(
            "%s is rolled back, %s serves again: %s", reign.champion, restored, decision.reasons
        )

    def _reign(self) -> _Reign | None:
        """Return the reign to watch; None for a first or a restored champion."""
        registry = self.context.registry
        champion = registry.champion()
        if champion is None:
            return None
        last = registry.transitions(champion.version)[-1]
        previous = registry.predecessor(champion.version)
        if last.move is not Move.PROMOTE or previous is None:
            return None
        return _Reign(champion.version, previous, last.at)

    def _came_by_canary(self, version: str) -> bool:
        return any(
            canary.verdict is Verdict.PROMOTE and canary.log_e_value is not None
            for canary in self.context.registry.canaries(version)
        )

    def _read(
        self, reign: _Reign, plan: ComparisonPlan, *, moment: datetime
    ) -> tuple[Comparison | Missing, dict[str, Any]]:
        registry, settings = self.context.registry, self.context.settings
        latest = moment - timedelta(seconds=settings.canary.settle_s)
        model, tenant = registry.model, registry.tenant
        with registry.database.reading() as session:
            horizon = fetch_horizon(session, latest=latest, model=model, tenant=tenant)
            since = fetch_outcomes(
                session,
                Window(
                    version=reign.champion,
                    arms=(Arm.CHAMPION,),
                    after=reign.promoted_at,
                    closed_until=horizon,
                    model=model,
                    tenant=tenant,
                ),
            )
        seen = {"after": reign.promoted_at.isoformat(), "closed_until": horizon.isoformat()}
        try:
            before = self._read_record(reign, horizon)
            comparison = compare_arms(before, gather(since), plan)
        except ValueError as error:
            return Missing(f"the evidence cannot be used: {error}"), seen
        return comparison, {**seen, "comparison": comparison.to_json()}

    def _read_record(self, reign: _Reign, horizon: datetime) -> ArmOutcomes:
        """Return what the champion before showed, of its newest interactions only."""
        if self._record is not None and self._record[0] == reign:
            return self._record[1]
        registry = self.context.registry
        window = Window(
            version=reign.previous,
            closed_until=reign.promoted_at,
            model=registry.model,
            tenant=registry.tenant,
        )
        newest = _ROWS_PER_PAIR * self.context.settings.champion.max_pairs
        with registry.database.reading() as session:
            outcomes = gather(fetch_outcomes(session, window, newest=newest))
        if horizon >= reign.promoted_at:
            self._record = (reign, outcomes)
        return outcomes

    def _plan(self, reign: _Reign) -> ComparisonPlan:
        settings = self.context.settings
        return ComparisonPlan(
            share=_EQUAL_SHARE,
            min_lift=0.0,
            max_lift=settings.canary.max_lift,
            harm_margin=settings.champion.margin,
            malformed_margin=settings.guardrails.malformed_margin,
            length_tolerance=settings.guardrails.length_tolerance,
            length_cap=find_length_cap(self.context.registry, reign.previous, settings),
            alpha_guardrails=settings.champion.alpha,
        )
