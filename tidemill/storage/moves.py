"""One model's versions under the lock of its traffic row: what a single transaction may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from tidemill.contracts.lifecycle import Move, PolicyStatus, Verdict, next_status
from tidemill.errors import PolicyNotFoundError
from tidemill.storage.database import Database
from tidemill.storage.gate_runs import GateRun, StoredGateRun, insert_gate_run
from tidemill.storage.policies import (
    fetch_highest_number,
    fetch_policy_version,
    insert_policy_version,
    insert_transition,
)
from tidemill.storage.releases import (
    count_canaries,
    fetch_open_canary,
    insert_canary,
    lock_traffic,
)
from tidemill.storage.tables import CanaryRow, PolicyTransitionRow, PolicyVersionRow, TrafficRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Who moves a version, for what reason, on what evidence."""

    reason: str
    actor: str
    evidence: GateRun | None = None
    """Stored in the transaction of the move."""


@dataclass(frozen=True, slots=True)
class LockedVersions:
    """The versions of one model; nobody else moves one of them before the transaction ends."""

    session: Session
    traffic: TrafficRow
    now: datetime

    @property
    def model(self) -> str:
        """The model."""
        return self.traffic.model

    @property
    def tenant(self) -> str:
        """The tenant."""
        return self.traffic.tenant

    def take_number(self) -> int:
        """Return the next version number; nobody gets it again."""
        highest = fetch_highest_number(self.session, model=self.model, tenant=self.tenant)
        number = max(self.traffic.next_number, highest + 1)
        self.traffic.next_number = number + 1
        return number

    def get(self, version: str) -> PolicyVersionRow:
        """Return a version.

        Raises:
            PolicyNotFoundError: unknown.
        """
        row = self.find(version)
        if row is None:
            raise PolicyNotFoundError(
                f"no version {version} of {self.model}; see `tidemill releases list`"
            )
        return row

    def find(self, version: str) -> PolicyVersionRow | None:
        """Return a version, None if it is unknown."""
        return fetch_policy_version(self.session, version, model=self.model, tenant=self.tenant)

    def insert(self, row: PolicyVersionRow) -> None:
        """Add a version."""
        insert_policy_version(self.session, row)

    def move(self, version: str, move: Move, why: Why) -> None:
        """Move a version through its lifecycle and note it.

        Raises:
            PolicyNotFoundError: unknown.
            IllegalTransitionError: the lifecycle table has no such move.
        """
        row = self.get(version)
        before = PolicyStatus(row.status)
        after = next_status(before, move)
        row.status = after
        row.status_at = self.now
        row.revision += 1
        transition = PolicyTransitionRow(
            version=version,
            model=self.model,
            tenant=self.tenant,
            move=move,
            from_status=before,
            to_status=after,
            reason=why.reason,
            actor=why.actor,
            at=self.now,
        )
        insert_transition(self.session, transition)

    def note_decision(self, version: str, run: GateRun) -> None:
        """Store a decision of the gate on a version."""
        self.get(version).revision += 1
        stored = StoredGateRun(version, run, self.now)
        insert_gate_run(self.session, stored, model=self.model, tenant=self.tenant)

    def point(
        self,
        *,
        champion: str | None,
        challenger: str | None = None,
        share: float = 0.0,
        salt: str | None = None,
    ) -> None:
        """Set who serves; `salt` None keeps the old one."""
        self.traffic.champion = champion
        self.traffic.challenger = challenger
        self.traffic.challenger_share = share
        if salt is not None:
            self.traffic.salt = salt
        self.traffic.revision += 1
        self.traffic.changed_at = self.now

    def start_canary(self, challenger: str, *, alpha: float, share: float) -> None:
        """Add the row of a canary against the present champion."""
        number = 1 + count_canaries(self.session, model=self.model, tenant=self.tenant)
        row = CanaryRow(
            model=self.model,
            tenant=self.tenant,
            challenger=challenger,
            champion=self.traffic.champion,
            number=number,
            alpha=alpha,
            share=share,
            started_at=self.now,
        )
        insert_canary(self.session, row)

    def end_canary(self, verdict: Verdict, *, log_e_value: float | None = None) -> None:
        """Close the canary that runs, if one does; HOLD = it ends undecided."""
        row = fetch_open_canary(self.session, model=self.model, tenant=self.tenant)
        if row is not None:
            row.ended_at = self.now
            row.verdict = verdict
            row.log_e_value = log_e_value


@contextmanager
def locked_versions(
    database: Database, *, model: str, tenant: str, now: datetime
) -> Iterator[LockedVersions]:
    """Yield one model's versions under their lock; all changes become durable together.

    Raises:
        StorageError: the database refused; nothing changed.
    """
    with database.transaction() as session:
        traffic = lock_traffic(session, model=model, tenant=tenant, now=now)
        yield LockedVersions(session, traffic, now)
