"""The step before users: a candidate runs the offline suite, then enters the canary or leaves."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from gating.alpha_ledger import allocate_alpha
from gating.context import ACTOR, GateContext
from gating.decisions import Decision, Missing, OfflineEvidence, OfflineRules, decide_offline
from gating.queue import choose_candidate, superseded_by
from gating.suite import NO_SUITE, SuiteResult
from tidemill.contracts.lifecycle import Verdict
from tidemill.errors import ProbeFailedError, SnapshotCorruptError
from tidemill.registry import PolicyRecord, Why
from tidemill.storage.gate_runs import OFFLINE

_log = logging.getLogger(__name__)

Measure = Callable[[str], SuiteResult | Missing]
"""Runs the suite on a version."""


@dataclass(slots=True)
class OfflineStep:
    """Judges one candidate at a time."""

    context: GateContext
    measure: Measure
    _results: dict[str, SuiteResult] = field(default_factory=dict)
    _retry_at: dict[str, datetime] = field(default_factory=dict)

    def judge_next(self) -> str | None:
        """Judge the next candidate; return what happened, None when nobody waits."""
        registry = self.context.registry
        moment = self.context.now()
        waiting = [version for version, at in self._retry_at.items() if at > moment]
        candidates = registry.candidates()
        chosen = choose_candidate(candidates, waiting=waiting)
        if chosen is None:
            return None
        champion = registry.champion()
        decision, evidence = self._judge(chosen, champion)
        _log.info("%s offline: %s, %s", chosen.version, decision.verdict, decision.reasons)
        if decision.verdict is Verdict.REJECT:
            why = self.context.why(OFFLINE, decision, evidence)
            registry.reject(chosen.version, why=why)
        elif decision.verdict is Verdict.HOLD:
            retry_s = self.context.settings.retry_s
            self._retry_at[chosen.version] = moment + timedelta(seconds=retry_s)
            self.context.note_hold(chosen.version, OFFLINE, decision, evidence)
        else:
            self._admit(chosen, champion, decision, evidence)
            for older in superseded_by(chosen, candidates):
                reason = f"{chosen.version} of the same learner is newer"
                registry.supersede(older.version, why=Why(reason=reason, actor=ACTOR))
        return f"{chosen.version} offline: {decision.verdict}, {'; '.join(decision.reasons)}"

    def _judge(
        self, candidate: PolicyRecord, champion: PolicyRecord | None
    ) -> tuple[Decision, dict[str, Any]]:
        rules = self._rules()
        try:
            result = self._result_of(candidate.version)
        except (SnapshotCorruptError, ProbeFailedError) as error:
            reason = f"the snapshot must not serve: {error}"
            return Decision(Verdict.REJECT, (reason,)), {"error": str(error)}
        if isinstance(result, Missing):
            if result.reason == NO_SUITE and self.context.settings.offline.allow_without_suite:
                reason = "no suite, and `allow_without_suite` lets candidates pass unseen"
                return Decision(Verdict.PROMOTE, (reason,)), {"suite": None}
            return decide_offline(result, rules), {"missing": result.reason}
        rival = None if champion is None else self._champion_score(champion.version)
        if isinstance(rival, Missing):
            return decide_offline(rival, rules), {**result.to_json(), "missing": rival.reason}
        decision = decide_offline(
            OfflineEvidence(
                num_tasks=result.num_tasks,
                score=result.score,
                malformed_rate=result.malformed_rate,
                champion_score=rival,
            ),
            rules,
        )
        return decision, {
            **result.to_json(),
            "champion": None if champion is None else champion.version,
            "champion_score": rival,
            "threshold": rules.threshold,
            "margin": rules.margin,
            "max_malformed_rate": rules.max_malformed_rate,
        }

    def _champion_score(self, version: str) -> float | Missing:
        try:
            result = self._result_of(version)
        except (SnapshotCorruptError, ProbeFailedError) as error:
            return Missing(f"the champion {version} cannot be measured: {error}")
        return result if isinstance(result, Missing) else result.score

    def _result_of(self, version: str) -> SuiteResult | Missing:
        if version not in self._results:
            result = self.measure(version)
            if isinstance(result, Missing):
                return result
            self._results[version] = result
        return self._results[version]

    def _rules(self) -> OfflineRules:
        settings = self.context.settings.offline
        return OfflineRules(
            min_tasks=settings.min_tasks,
            threshold=settings.threshold,
            margin=settings.margin,
            max_malformed_rate=settings.max_malformed_rate,
        )

    def _admit(
        self,
        candidate: PolicyRecord,
        champion: PolicyRecord | None,
        decision: Decision,
        evidence: dict[str, Any],
    ) -> None:
        registry = self.context.registry
        why = self.context.why(OFFLINE, decision, evidence)
        if champion is None:
            # Nobody serves yet, so there is nobody to compare with.
            registry.promote(candidate.version, why=why)
            return
        canaries = registry.canaries()
        settings = self.context.settings.canary
        alpha = allocate_alpha(
            alpha=settings.alpha,
            number=len(canaries) + 1,
            # A promotion that an operator forced proves nothing, so it earns nothing.
            num_promoted=sum(
                canary.verdict is Verdict.PROMOTE and canary.log_e_value is not None
                for canary in canaries
            ),
        )
        registry.start_canary(candidate.version, share=settings.share, alpha=alpha, why=why)
