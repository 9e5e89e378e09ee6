"""Closed live interactions for tests of the gate: rows as ingest leaves them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from sqlalchemy.orm import Session

from tests.factories import NOW, make_experience
from tidemill.contracts.events import Arm
from tidemill.contracts.experience import Outcome
from tidemill.storage.database import Database
from tidemill.storage.experiences import insert_experiences
from tidemill.storage.tables import InteractionRow


@dataclass
class LiveTraffic:
    """Serves outcomes, one a second; `clock()` is the time after the last has settled."""

    database: Database
    at: datetime = NOW
    settle_s: float = 60.0
    model: str = "tide"
    _numbers: "count[int]" = field(default_factory=count)

    def clock(self) -> datetime:
        """Return the present."""
        return self.at + timedelta(seconds=self.settle_s)

    def pass_time(self, seconds: float) -> None:
        """Let time go by."""
        self.at += timedelta(seconds=seconds)

    def serve(
        self,
        version: str,
        arm: Arm,
        rewards: Iterable[float | None],
        *,
        num_tokens: int = 20,
        malformed: bool = False,
    ) -> list[str]:
        """Serve fresh subjects and return the interactions; None = nobody answered."""
        served = []
        with self.database.transaction() as session:
            for reward in rewards:
                self.at += timedelta(seconds=1)
                served.append(self._add(session, version, arm, reward, (num_tokens, malformed)))
        return served

    def _add(
        self,
        session: Session,
        version: str,
        arm: Arm,
        reward: float | None,
        shape: tuple[int, bool],
    ) -> str:
        number = next(self._numbers)
        num_tokens, malformed = shape
        state = "malformed" if malformed else "rewarded" if reward is not None else "excluded"
        experience = make_experience(
            model=self.model,
            subject=f"subject-{number}",
            arm=arm.value,
            assignment_probability=0.5,
            policy_version=version,
            completion_ids=(7,) * num_tokens,
            outcome=Outcome.MALFORMED if malformed else Outcome.REWARDED,
            reward=0.0 if malformed or reward is None else reward,
        )
        session.add(
            InteractionRow(
                interaction_id=experience.experience_id,
                trajectory_id=experience.trajectory_id,
                turn=0,
                tenant="default",
                model=self.model,
                subject=experience.subject,
                policy_version=version,
                arm=arm.value,
                state=state,
                excluded_reason="silent" if state == "excluded" else None,
                partition=0,
                log_offset=number,
                appended_at=self.at,
                closes_at=self.at + timedelta(seconds=4),
                closed_at=self.at + timedelta(seconds=5),
            )
        )
        if state != "excluded":
            insert_experiences(session, [experience], created_at=self.at)
        return experience.experience_id
