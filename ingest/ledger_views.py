"""What a caller may read of the ledger: one feedback, one interaction."""

from dataclasses import dataclass
from typing import Any

from tidemill.storage.database import Database
from tidemill.storage.dead_letters import fetch_dead_letters
from tidemill.storage.experiences import fetch_experience
from tidemill.storage.feedback import fetch_feedback
from tidemill.storage.interactions import fetch_interaction
from tidemill.storage.ledger_groups import GroupBy, StateCount, fetch_state_counts
from tidemill.storage.tables import DeadLetterRow


@dataclass(frozen=True, slots=True)
class LedgerViews:
    """Reads rows into JSON."""

    database: Database

    def feedback(self, tenant: str, feedback_id: str) -> dict[str, Any] | None:
        """Return a feedback's state and its dead letters; None = no such id."""
        with self.database.reading() as session:
            row = fetch_feedback(session, tenant=tenant, feedback_id=feedback_id)
            letters = fetch_dead_letters(session, tenant=tenant, record_id=feedback_id)
        if row is None and not letters:
            return None
        view: dict[str, Any] = {"feedback_id": feedback_id, "state": "dead_lettered"}
        if row is not None:
            view |= {
                "state": row.state,
                "trajectory_id": row.trajectory_id,
                "interaction_id": row.interaction_id,
                "metric": row.metric,
                "value": row.value,
                "source": row.source,
                "appended_at": row.appended_at.isoformat(),
            }
        return view | {"dead_letters": [_letter(one) for one in letters]}

    def states(self, tenant: str) -> list[StateCount]:
        """Return how much of a tenant's is in each state."""
        with self.database.reading() as session:
            return fetch_state_counts(session, {GroupBy.TENANT}, tenant=tenant)

    def interaction(self, tenant: str, interaction_id: str) -> dict[str, Any] | None:
        """Return an interaction's state and reward; None = unknown."""
        with self.database.reading() as session:
            row = fetch_interaction(session, tenant=tenant, interaction_id=interaction_id)
            if row is None:
                return None
            experience = fetch_experience(session, tenant=tenant, experience_id=interaction_id)
        return {
            "interaction_id": row.interaction_id,
            "trajectory_id": row.trajectory_id,
            "turn": row.turn,
            "model": row.model,
            "policy_version": row.policy_version,
            "arm": row.arm,
            "state": row.state,
            "excluded_reason": row.excluded_reason,
            "appended_at": row.appended_at.isoformat(),
            "closes_at": row.closes_at.isoformat(),
            "reward": None if experience is None else experience.reward,
            "components": None if experience is None else experience.components,
        }


def _letter(row: DeadLetterRow) -> dict[str, Any]:
    return {
        "reason": row.reason,
        "detail": row.detail,
        "appended_at": row.appended_at.isoformat(),
    }
