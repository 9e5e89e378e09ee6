"""The figures that stand side by side when releases are compared: on a page, and in MLflow."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from gating.comparison import ArmFigures
from gating.outcomes import gather
from tidemill.registry import PolicyRecord, PolicyRegistry, StoredGateRun
from tidemill.storage.evidence import Window, fetch_outcomes
from tidemill.storage.gate_runs import OFFLINE
from tidemill.tracking import VersionSheet

_METRIC_NAMES = {
    "offline/score": "offline_score",
    "live/acceptance": "live_acceptance",
    "live/acceptance_low": "live_low",
    "live/acceptance_high": "live_high",
    "live/labelled": "live_labelled",
    "guardrail/malformed_rate": "malformed_rate",
    "guardrail/mean_tokens": "mean_tokens",
    "events": "events",
    "staleness": "staleness",
    "kl": "kl",
}
"""Name in MLflow -> field here; every version carries all of them."""
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionFigures:
    """One version; None = not known, which is not zero."""

    version: str
    status: str
    parent: str | None
    origin: str
    published_at: str
    offline_score: float | None
    live_acceptance: float | None
    """Mean of each subject's first labelled outcome."""
    live_low: float
    """95 % interval, right at every look."""
    live_high: float
    live_labelled: int
    malformed_rate: float | None
    """Live; of the offline suite before any user met the version."""
    mean_tokens: float | None
    """The same for the completion length."""
    events: int
    """Experiences trained on since the parent."""
    step: int
    staleness: float | None
    """Largest in the last step before it was published (optimiser steps)."""
    kl: float | None
    """To the reference policy at that step (nats a token)."""
    verdict: str | None
    """The gate's last."""
    reason: str | None
    """Of the last move, else of the last verdict."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields."""
        return asdict(self)


def collect_figures(registry: PolicyRegistry, record: PolicyRecord) -> VersionFigures:
    """Read everything about one version from SQL."""
    window = Window(version=record.version, model=registry.model, tenant=registry.tenant)
    with registry.database.reading() as session:
        outcomes = gather(fetch_outcomes(session, window))
    live = ArmFigures.of(outcomes)
    decisions = registry.decisions(record.version)
    transitions = registry.transitions(record.version)
    suite = _last_suite(decisions)
    provenance = record.provenance
    measured = provenance.get("metrics") or {}
    reasons = [move.reason for move in transitions] or [
        "; ".join(stored.run.reasons) for stored in decisions
    ]
    return VersionFigures(
        version=record.version,
        status=record.status,
        parent=record.parent,
        origin=str(provenance.get("origin", UNKNOWN)),
        published_at=record.created_at.isoformat(timespec="seconds"),
        offline_score=_number(suite.get("score")),
        live_acceptance=live.acceptance,
        live_low=live.acceptance_low,
        live_high=live.acceptance_high,
        live_labelled=live.num_labelled,
        malformed_rate=_mean(outcomes.malformed, suite.get("malformed_rate")),
        mean_tokens=_mean(outcomes.num_tokens, suite.get("mean_tokens")),
        events=int(provenance.get("num_experiences", 0)),
        step=record.step,
        staleness=_number(measured.get("max_staleness")),
        kl=_number(measured.get("kl_reference")),
        verdict=decisions[-1].run.verdict if decisions else None,
        reason=reasons[-1] if reasons else None,
    )


def describe_version(registry: PolicyRegistry, record: PolicyRecord) -> VersionSheet:
    """Return what MLflow shows: the known figures as metrics, all of them as tags."""
    fields = collect_figures(registry, record).to_json()
    values = {name: fields[field] for name, field in _METRIC_NAMES.items()}
    told = {name: fields[name] for name in ("parent", "verdict", "status", "origin", "reason")}
    return VersionSheet(
        metrics={name: float(value) for name, value in values.items() if value is not None},
        tags={
            name: UNKNOWN if value is None else str(value)
            for name, value in (values | told).items()
        },
    )


def _last_suite(decisions: Sequence[StoredGateRun]) -> dict[str, Any]:
    for stored in reversed(decisions):
        if stored.run.stage == OFFLINE and "score" in stored.run.evidence:
            return stored.run.evidence
    return {}


def _mean(values: tuple[float, ...], otherwise: object) -> float | None:
    return sum(values) / len(values) if values else _number(otherwise)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and isfinite(value) else None
