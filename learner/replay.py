"""Which experiences form the next round: unusable ones dropped with a reason, shares kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from learner.batching import BatchItem, choose_batch, max_items
from learner.settings import LearnerSettings
from learner.staleness import DropReason, Limits, compute_staleness, find_unfit, is_over_stale
from tidemill.contracts.experience import Experience
from tidemill.storage.database import Database
from tidemill.storage.learning import (
    QueueEntry,
    drop_experiences,
    drop_versions,
    fetch_experiences_by_id,
    fetch_queue,
    fetch_ready_versions,
)
from tidemill.storage.quarantine import drop_quarantined, has_quarantine

_QUEUE_BATCHES = 32
"""Batches of waiting experiences that a choice looks through."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The waiting experiences of one model."""

    database: Database
    model: str
    tenant: str
    settings: LearnerSettings
    limits: Limits

    def drop_unusable_versions(self, *, learner_step: int, version_steps: Mapping[str, int]) -> int:
        """Drop what is too stale, or of no known version; return how many were."""
        with self.database.reading() as session:
            waiting = fetch_ready_versions(session, model=self.model, tenant=self.tenant)
        reasons = {v: self._why_unusable(v, learner_step, version_steps) for v in waiting}
        unusable = {version: reason for version, reason in reasons.items() if reason}
        if not unusable:
            return 0
        num_dropped = 0
        with self.database.transaction() as session:
            for reason in DropReason:
                versions = [v for v, found in unusable.items() if found is reason]
                num_dropped += drop_versions(
                    session, versions, reason, model=self.model, tenant=self.tenant
                )
        return num_dropped

    def choose(self, *, min_size: int) -> list[Experience]:
        """Return the experiences of the next batch, oldest first; [] = too few."""
        self._drop_quarantined()
        while True:
            chosen = self._choose_once(min_size)
            unfit = {
                e.experience_id: reason.value
                for e in chosen
                if (reason := find_unfit(e, self.limits))
            }
            if not unfit:
                return chosen
            with self.database.transaction() as session:
                drop_experiences(session, unfit, tenant=self.tenant)

    def fetch(self, experience_ids: Sequence[str]) -> list[Experience]:
        """Return those of the experiences that can still be used, in the given order."""
        self._drop_quarantined()
        with self.database.reading() as session:
            found = fetch_experiences_by_id(session, experience_ids, tenant=self.tenant)
        return [found[i] for i in experience_ids if i in found]

    def _drop_quarantined(self) -> None:
        """Let whoever is in quarantine have no part in the steps from here on."""
        with self.database.reading() as session:
            if not has_quarantine(session, tenant=self.tenant):
                return
        with self.database.transaction() as session:
            drop_quarantined(
                session,
                model=self.model,
                tenant=self.tenant,
                reason=DropReason.QUARANTINED.value,
            )

    def _choose_once(self, min_size: int) -> list[Experience]:
        size, shares = self.settings.batch_size, self.settings.max_shares
        with self.database.reading() as session:
            entries = fetch_queue(
                session,
                model=self.model,
                tenant=self.tenant,
                max_per_subject=max_items(shares.subject, size),
                limit=size * _QUEUE_BATCHES,
            )
            ids = choose_batch(
                [_to_item(entry) for entry in entries],
                max_size=size,
                min_size=min_size,
                max_shares=shares.model_dump(),
            )
            found = fetch_experiences_by_id(session, ids, tenant=self.tenant)
        return [found[i] for i in ids if i in found]

    def _why_unusable(
        self, version: str, learner_step: int, version_steps: Mapping[str, int]
    ) -> DropReason | None:
        if version not in version_steps:
            return DropReason.UNKNOWN_VERSION
        staleness = compute_staleness(
            learner_step=learner_step, version_step=version_steps[version]
        )
        is_stale = is_over_stale(
            staleness,
            num_uses=self.settings.uses_per_experience,
            max_staleness=self.settings.max_staleness_steps,
        )
        return DropReason.STALE if is_stale else None


def _to_item(entry: QueueEntry) -> BatchItem:
    whose = entry.subject or entry.trajectory_id
    raters = {("rater", rater) for rater in entry.raters}
    keys = frozenset({("subject", whose), ("tenant", entry.tenant), *raters})
    return BatchItem(entry.experience_id, keys)
