"""Moves of policy versions: legal ones only, under a row lock, each with its reason and evidence.

A move, its traffic change and the decision behind it are one transaction. Nothing here needs a
learner, a gate process, MLflow or the network beyond the database.
"""

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from tidemill.contracts.lifecycle import Move, PolicyStatus, Verdict
from tidemill.errors import NoChampionError, PolicyNotFoundError, RegistryError
from tidemill.registry.records import Canary, PolicyRecord, Traffic, Transition
from tidemill.storage.database import Database
from tidemill.storage.gate_runs import GateRun, StoredGateRun, fetch_gate_runs
from tidemill.storage.moves import LockedVersions, Why, locked_versions
from tidemill.storage.policies import (
    fetch_policy_version,
    fetch_policy_versions,
    fetch_predecessor,
    fetch_transitions,
)
from tidemill.storage.releases import fetch_canaries, fetch_traffic
from tidemill.storage.tables import PolicyVersionRow

_SHORT = re.compile(r"v?(\d{1,18})")


class PolicyRegistry:
    """The versions of one (model, tenant); safe to share between threads and processes."""

    def __init__(
        self,
        database: Database,
        *,
        model: str,
        tenant: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.database = database
        self.model = model
        self.tenant = tenant
        self._now = now

    def next_number(self) -> int:
        """Take the number of the next version, from 1; each is given out once (v0 is the base)."""
        with self._locked() as versions:
            return versions.take_number()

    def register(self, record: PolicyRecord) -> PolicyRecord:
        """Add a candidate; the same version again changes nothing, so a publisher may retry.

        Raises:
            RegistryError: the version's text does not fit its digest, or it is known with other
                content.
        """
        if record.version != f"v{record.number}-{record.digest[:12]}":
            raise RegistryError(
                f"{record.version} does not name its digest {record.digest:.12}; "
                "build the version with PolicyVersion.of(number, digest)"
            )
        with self._locked() as versions:
            known = versions.find(record.version)
            if known is None:
                known = self._row(record, versions.now)
                versions.insert(known)
            elif (known.digest, known.base_digest) != (record.digest, record.base_digest):
                raise RegistryError(
                    f"{record.version} is registered with digest {known.digest:.12} on base "
                    f"{known.base_digest:.12}; a version is never replaced, take a new number"
                )
            return PolicyRecord.of_row(known)

    def get(self, version: str) -> PolicyRecord:
        """Return a version.

        Raises:
            PolicyNotFoundError: unknown.
        """
        with self.database.reading() as session:
            row = fetch_policy_version(session, version, model=self.model, tenant=self.tenant)
        if row is None:
            raise PolicyNotFoundError(
                f"no version {version} of {self.model}; see `tidemill releases list`"
            )
        return PolicyRecord.of_row(row)

    def find(self, text: str) -> PolicyRecord:
        """Return the version that a person means by `v3-0a1b...`, `v3` or `3`.

        Raises:
            PolicyNotFoundError: none.
        """
        short = _SHORT.fullmatch(text)
        if short is None:
            return self.get(text)
        with self.database.reading() as session:
            rows = fetch_policy_versions(
                session, model=self.model, tenant=self.tenant, number=int(short[1])
            )
        if not rows:
            raise PolicyNotFoundError(f"no version {text}; see `tidemill releases list`")
        return PolicyRecord.of_row(rows[0])

    def list(self, status: PolicyStatus | None = None) -> list[PolicyRecord]:
        """Return all versions, or those of one status, lowest number first."""
        with self.database.reading() as session:
            rows = fetch_policy_versions(
                session, model=self.model, tenant=self.tenant, status=status
            )
        return [PolicyRecord.of_row(row) for row in rows]

    def candidates(self) -> Sequence[PolicyRecord]:
        """Return the candidates, newest first."""
        return self.list(PolicyStatus.CANDIDATE)[::-1]

    def champion(self) -> PolicyRecord | None:
        """Return who serves; None before anything passed."""
        return next(iter(self.list(PolicyStatus.CHAMPION)), None)

    def challenger(self) -> PolicyRecord | None:
        """Return who is in the canary, if anybody is."""
        return next(iter(self.list(PolicyStatus.CHALLENGER)), None)

    def traffic(self) -> Traffic:
        """Return who serves whom; an empty one before the first champion."""
        with self.database.reading() as session:
            return Traffic.of_row(fetch_traffic(session, model=self.model, tenant=self.tenant))

    def transitions(self, version: str | None = None) -> Sequence[Transition]:
        """Return the moves of one version or of all, oldest first."""
        with self.database.reading() as session:
            rows = fetch_transitions(session, model=self.model, tenant=self.tenant, version=version)
        return [Transition.of_row(row) for row in rows]

    def predecessor(self, version: str) -> str | None:
        """Return the version that was champion before this one was promoted, None without one."""
        with self.database.reading() as session:
            return fetch_predecessor(session, version, model=self.model, tenant=self.tenant)

    def canaries(self, challenger: str | None = None) -> Sequence[Canary]:
        """Return all canaries or those of one challenger, oldest first."""
        with self.database.reading() as session:
            rows = fetch_canaries(
                session, model=self.model, tenant=self.tenant, challenger=challenger
            )
        return [Canary.of_row(row) for row in rows]

    def decisions(self, version: str | None = None) -> Sequence[StoredGateRun]:
        """Return the gate's decisions on one version or on all, oldest first."""
        with self.database.reading() as session:
            return fetch_gate_runs(session, model=self.model, tenant=self.tenant, version=version)

    def record_decision(self, version: str, run: GateRun) -> None:
        """Store a decision that moves nobody.

        Raises:
            PolicyNotFoundError: unknown.
        """
        with self._locked() as versions:
            versions.note_decision(version, run)

    def start_canary(self, version: str, *, share: float, alpha: float, why: Why) -> None:
        """Let a candidate serve a share of the subjects beside the champion.

        Raises:
            RegistryError: there is no champion, a canary runs, or a figure is out of range.
        """
        if not (0 < share < 1 and 0 < alpha < 1):
            raise RegistryError(f"share {share} and alpha {alpha} must lie between 0 and 1")
        with self._locked() as versions:
            traffic = versions.traffic
            if traffic.champion is None:
                raise NoChampionError("no champion to compare with; promote the first one")
            if traffic.challenger is not None:
                raise RegistryError(f"{traffic.challenger} is in the canary; end that one first")
            self._move(versions, version, Move.START_CANARY, why)
            versions.start_canary(version, alpha=alpha, share=share)
            versions.point(
                champion=traffic.champion,
                challenger=version,
                share=share,
                # Fresh randomness, so that nobody's arm carries over from the last canary.
                salt=secrets.token_hex(16),
            )

    def promote(self, version: str, *, why: Why, log_e_value: float | None = None) -> None:
        """Make a candidate or challenger the champion; the old champion retires.

        Another version in the canary leaves it undecided, since its comparison lost its ground.

        Raises:
            PolicyNotFoundError: unknown.
            IllegalTransitionError: neither candidate nor challenger.
        """
        with self._locked() as versions:
            old, challenger = versions.traffic.champion, versions.traffic.challenger
            if challenger == version:
                versions.end_canary(Verdict.PROMOTE, log_e_value=log_e_value)
            elif challenger is not None:
                self._withdraw(versions, challenger, f"{version} became champion", why.actor)
            versions.get(version)
            if old is not None and old != version:
                retire = Why(reason=f"replaced by {version}", actor=why.actor)
                versions.move(old, Move.RETIRE, retire)
            self._move(versions, version, Move.PROMOTE, why)
            versions.point(champion=version)

    def reject(self, version: str, *, why: Why, log_e_value: float | None = None) -> None:
        """Turn a candidate or challenger away for good.

        Raises:
            PolicyNotFoundError: unknown.
            IllegalTransitionError: neither candidate nor challenger.
        """
        with self._locked() as versions:
            self._move(versions, version, Move.REJECT, why)
            self._leave_canary(versions, version, Verdict.REJECT, log_e_value)

    def supersede(self, version: str, *, why: Why, log_e_value: float | None = None) -> None:
        """Let a candidate or challenger go undecided: no fault of its own.

        Raises:
            PolicyNotFoundError: unknown.
            IllegalTransitionError: neither candidate nor challenger.
        """
        with self._locked() as versions:
            self._move(versions, version, Move.SUPERSEDE, why)
            self._leave_canary(versions, version, Verdict.HOLD, log_e_value)

    def roll_back(self, *, why: Why, expected: str | None = None) -> str:
        """Take the champion away and restore the one before it; return the restored version.

        Args:
            why: stored with the champion that leaves.
            expected: refuse when somebody else is champion by now.

        Raises:
            NoChampionError: nobody serves.
            RegistryError: there is none to return to, or the champion is not the expected one.
        """
        with self._locked() as versions:
            bad, challenger = versions.traffic.champion, versions.traffic.challenger
            if bad is None:
                raise NoChampionError("no champion, so nothing to roll back")
            if expected not in (None, bad):
                raise RegistryError(f"{bad} is champion by now, not {expected}; look again")
            previous = fetch_predecessor(
                versions.session, bad, model=self.model, tenant=self.tenant
            )
            if previous is None:
                raise RegistryError(
                    f"{bad} is the first champion, there is no version to return to; promote "
                    "another with `tidemill releases promote VERSION --force --reason ...`"
                )
            if challenger is not None:
                self._withdraw(versions, challenger, f"{bad} was rolled back", why.actor)
            self._move(versions, bad, Move.ROLL_BACK, why)
            restore = Why(reason=f"{bad} was rolled back", actor=why.actor)
            versions.move(previous, Move.RESTORE, restore)
            versions.point(champion=previous)
            return previous

    def _locked(self) -> AbstractContextManager[LockedVersions]:
        return locked_versions(self.database, model=self.model, tenant=self.tenant, now=self._now())

    @staticmethod
    def _move(versions: LockedVersions, version: str, move: Move, why: Why) -> None:
        versions.move(version, move, why)
        if why.evidence is not None:
            versions.note_decision(version, why.evidence)

    @staticmethod
    def _leave_canary(
        versions: LockedVersions, version: str, verdict: Verdict, log_e_value: float | None
    ) -> None:
        if versions.traffic.challenger == version:
            versions.end_canary(verdict, log_e_value=log_e_value)
            versions.point(champion=versions.traffic.champion)

    @staticmethod
    def _withdraw(versions: LockedVersions, challenger: str, reason: str, actor: str) -> None:
        versions.move(challenger, Move.SUPERSEDE, Why(reason=reason, actor=actor))
        versions.end_canary(Verdict.HOLD)

    def _row(self, record: PolicyRecord, now: datetime) -> PolicyVersionRow:
        return PolicyVersionRow(
            version=record.version,
            model=self.model,
            tenant=self.tenant,
            number=record.number,
            parent=record.parent,
            status=PolicyStatus.CANDIDATE,
            step=record.step,
            digest=record.digest,
            snapshot=record.snapshot,
            base_digest=record.base_digest,
            provenance=record.provenance,
            created_at=record.created_at,
            status_at=now,
            revision=1,
            mirrored_revision=0,
        )
