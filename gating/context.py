"""What all steps of one gate share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gating.decisions import Decision
from gating.settings import GatingSettings
from tidemill.contracts.lifecycle import Verdict
from tidemill.registry import GateRun, PolicyRegistry, Why

ACTOR = "gate"


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class GateContext:
    """The registry, the settings, the clock, and which holds were stored when."""

    registry: PolicyRegistry
    settings: GatingSettings
    now: Callable[[], datetime] = _utc_now
    _stored_holds: dict[tuple[str, str], datetime] = field(default_factory=dict)

    def why(self, stage: str, decision: Decision, evidence: dict[str, Any]) -> Why:
        """Return a decision in the form that a move is stored with."""
        return Why(
            reason="; ".join(decision.reasons),
            actor=ACTOR,
            evidence=self.run(stage, decision, evidence),
        )

    @staticmethod
    def run(stage: str, decision: Decision, evidence: dict[str, Any]) -> GateRun:
        """Return the row of a decision."""
        return GateRun(
            stage=stage,
            verdict=decision.verdict,
            reasons=decision.reasons,
            evidence=evidence,
        )

    def note_hold(
        self, version: str, stage: str, decision: Decision, evidence: dict[str, Any]
    ) -> None:
        """Store a hold: the first of a version at a stage, then one in `hold_every_s`."""
        if decision.verdict is not Verdict.HOLD:
            raise ValueError(f"{decision.verdict} is no hold")
        moment = self.now()
        stored_at = self._stored_holds.get((version, stage))
        if stored_at is not None:
            age_s = (moment - stored_at).total_seconds()
            if age_s < self.settings.hold_every_s:
                return
        self._stored_holds[version, stage] = moment
        self.registry.record_decision(version, self.run(stage, decision, evidence))
