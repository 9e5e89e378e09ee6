"""The live learner: one adapter, trained round by round, every step durable before it counts.

Order of a step: optimiser, checkpoint (fsynced), then one transaction with the step and the uses.
A crash anywhere in between repeats the step from the checkpoint that SQL names, with equal bits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from learner.checkpoints import CheckpointStore, SavedCheckpoint
from learner.lineage import ResetReason, find_ancestors, find_judged, is_live_data_over_stale
from learner.publishing import Publication, Publisher
from learner.replay import Queue
from learner.rounds import begin_lineage, begin_round, finish_step, note_published
from learner.settings import LearnerSettings
from learner.staleness import DropReason, Limits, compute_staleness
from learner.state import LearnerState, Round
from learner.trainer import Trainer
from tidemill.contracts.experience import Experience
from tidemill.errors import NonFiniteError
from tidemill.registry import PolicyRecord, PolicyRegistry, Traffic
from tidemill.settings import LoraSettings
from tidemill.snapshots.manifest import Provenance
from tidemill.storage.database import Database
from tidemill.storage.learning import (
    StepRecord,
    Uses,
    drop_experiences,
    fetch_last_step,
    fetch_moves_after,
    record_step,
)


class Did(StrEnum):
    """What one turn of the learner came to."""

    NO_CHAMPION = "no_champion"
    WAITED = "waited"
    RESET = "reset"
    STEPPED = "stepped"
    REFUSED = "refused"
    """The step was not finite; its batch is dropped."""
    PUBLISHED = "published"


@dataclass(slots=True)
class LiveLearner:
    """Trains on the live experiences of one (model, tenant)."""

    settings: LearnerSettings
    lora: LoraSettings
    database: Database
    registry: PolicyRegistry
    publisher: Publisher
    checkpoints: CheckpointStore
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    state: LearnerState | None = field(default=None, init=False)
    num_dropped: int = field(default=0, init=False)
    """Since this process began."""
    _trainer: Trainer | None = field(default=None, init=False)
    _waiting_since: float = field(default=0.0, init=False)
    _version_steps: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def name(self) -> str:
        """Identity in the database."""
        return f"{self.registry.model}/{self.registry.tenant}"

    @property
    def queue(self) -> Queue:
        """What waits for it."""
        base = self.publisher.base
        limits = Limits(base.vocabulary, min(self.settings.max_tokens, base.max_context))
        registry = self.registry
        return Queue(self.database, registry.model, registry.tenant, self.settings, limits)

    def load(self) -> None:
        """Take up the state that SQL names; without one the learner waits for a champion.

        Raises:
            SnapshotCorruptError: the checkpoint or the start of the lineage is damaged.
        """
        self._waiting_since = self._clock()
        with self.database.reading() as session:
            row = fetch_last_step(session, self.name)
        if row is None or row.checkpoint is None or row.checkpoint_digest is None:
            self.state = self._trainer = None
            return
        tensors, state = self.checkpoints.load(
            SavedCheckpoint(row.checkpoint, row.checkpoint_digest)
        )
        self._trainer = self._new_trainer(state.start_version)
        self._trainer.restore(tensors)
        self.state = self._absorb_published(state)

    def turn(self) -> Did:
        """Do the next thing: reset, step, publish, or nothing.

        Raises:
            StorageError: nothing was recorded; call `load` before the next turn.
        """
        state = self.state
        if state is None:
            return self._reset(ResetReason.FIRST_CHAMPION)
        if state.current_round is None:
            records = {record.version: record for record in self.registry.list()}
            traffic = self.registry.traffic()
            reason, state = self._look_at_moves(state, records, traffic)
            is_last_word = reason is ResetReason.OVER_STALE and state.has_unpublished_steps
            if is_last_word or (reason is None and self._is_publishing_due(state, traffic)):
                return self._publish(state)
            if reason is not None:
                return self._reset(reason)
            if not self._begin_round(state, records):
                return Did.WAITED
        return self._step()

    def _look_at_moves(
        self, state: LearnerState, records: Mapping[str, PolicyRecord], traffic: Traffic
    ) -> tuple[ResetReason | None, LearnerState]:
        """Return why this lineage has to end, None = it goes on; and the state, moves noted."""
        with self.database.reading() as session:
            moves = fetch_moves_after(
                session,
                state.last_transition,
                model=self.registry.model,
                tenant=self.registry.tenant,
            )
        parents = {version: record.parent for version, record in records.items()}
        own = state.published_versions
        reason = find_judged(
            [(version, move) for _, version, move in moves],
            own=own,
            former={v for v, r in records.items() if self._is_own(r) and v not in own},
            ancestors=find_ancestors(state.start_version, parents),
        )
        served = {traffic.champion, traffic.challenger}
        if reason is None and is_live_data_over_stale(
            [record.step for version, record in records.items() if version in served],
            learner_step=state.step,
            num_uses=self.settings.uses_per_experience,
            max_staleness=self.settings.max_staleness_steps,
        ):
            reason = ResetReason.OVER_STALE
        if moves and reason is None:
            # Durable with the next step; looking at a move twice does no harm before that.
            state = replace(state, last_transition=moves[-1][0])
            self.state = state
        return reason, state

    def _reset(self, reason: ResetReason) -> Did:
        """Begin a lineage at the champion, with its weights and step and a fresh optimiser.

        The moves are read before the champion: one in between is looked at in the next turn.
        """
        with self.database.reading() as session:
            moves = fetch_moves_after(
                session, 0, model=self.registry.model, tenant=self.registry.tenant
            )
        champion = self.registry.champion()
        if champion is None:
            return Did.NO_CHAMPION
        state = begin_lineage(
            self.state,
            champion=champion.version,
            step=champion.step,
            last_transition=moves[-1][0] if moves else 0,
            at=self._clock(),
        )
        trainer = self._new_trainer(champion.version)
        self._commit(trainer, state, origin="reset", metrics={"reason": reason.value})
        self._trainer = trainer
        return Did.RESET

    def _begin_round(self, state: LearnerState, records: Mapping[str, PolicyRecord]) -> bool:
        """Choose and score the next batch; False = too few wait."""
        self._version_steps = {version: record.step for version, record in records.items()}
        self.num_dropped += self.queue.drop_unusable_versions(
            learner_step=state.step, version_steps=self._version_steps
        )
        is_late = self._clock() - self._waiting_since >= self.settings.max_batch_wait_s
        settings = self.settings
        min_size = settings.min_batch_size if is_late else settings.batch_size
        batch = self.queue.choose(min_size=min_size)
        if not batch:
            return False
        self.state = begin_round(
            state, batch, baseline=settings.baseline, is_scaled=settings.scale_by_batch_std
        )
        return True

    def _step(self) -> Did:
        state, trainer = self.state, self._trainer
        assert state is not None and trainer is not None  # noqa: S101, PT018 (turn saw to both)
        assert state.current_round is not None  # noqa: S101
        current = state.current_round
        batch = self.queue.fetch(current.experience_ids)
        if not batch:
            self.state = replace(state, current_round=None)
            return Did.REFUSED
        advantage_of = dict(zip(current.experience_ids, current.advantages, strict=True))
        ids = tuple(experience.experience_id for experience in batch)
        advantages = tuple(advantage_of[i] for i in ids)
        try:
            measured = trainer.step(batch, advantages)
        except NonFiniteError:
            with self.database.transaction() as session:
                reasons = dict.fromkeys(ids, DropReason.NON_FINITE.value)
                self.num_dropped += drop_experiences(session, reasons, tenant=self.queue.tenant)
            self.state = replace(state, current_round=None)
            return Did.REFUSED
        metrics = measured | self._describe(batch, state)
        done = Round(ids, advantages, current.num_done)
        num_uses = self.settings.uses_per_experience
        after = finish_step(state, done, num_uses=num_uses, metrics=metrics)
        uses = Uses(self.queue.tenant, ids, current.num_done, num_uses)
        self._commit(trainer, after, origin="live", metrics=metrics, uses=uses)
        self._waiting_since = self._clock()
        return Did.STEPPED

    def _commit(
        self,
        trainer: Trainer,
        state: LearnerState,
        *,
        origin: str,
        metrics: Mapping[str, Any],
        uses: Uses | None = None,
    ) -> None:
        """Make a state durable: the file first, then the row that names it."""
        saved = self.checkpoints.save(trainer.tensors(), state)
        record = StepRecord(
            learner=self.name,
            serial=state.serial,
            step=state.step,
            lineage=state.lineage,
            origin=origin,
            parent_version=state.head_version,
            checkpoint=saved.name,
            checkpoint_digest=saved.digest,
            metrics=metrics,
            finished_at=self.now(),
        )
        with self.database.transaction() as session:
            record_step(session, record, uses)
        self.state = state
        self.checkpoints.prune(saved)

    def _is_publishing_due(self, state: LearnerState, traffic: Traffic) -> bool:
        if traffic.challenger is not None or not state.has_unpublished_steps:
            return False
        every = self.settings.publish_every_experiences
        is_full = every is not None and state.unpublished.get(traffic.champion or "", 0) >= every
        return is_full or self._clock() - state.published_at >= self.settings.publish_every_s

    def _publish(self, state: LearnerState) -> Did:
        assert self._trainer is not None  # noqa: S101
        provenance = Provenance(
            origin="live",
            learner=self.name,
            num_experiences=state.num_unpublished,
            first_experience=state.first_experience,
            last_experience=state.last_experience,
            reward_spec_hash=state.reward_spec_hash,
            metrics=state.metrics,
        )
        publication = Publication(
            self._trainer.adapter(), state.step, state.head_version, provenance
        )
        record = self.publisher.publish(publication)
        self.state = _note(state, record, self._clock())
        return Did.PUBLISHED

    def _absorb_published(self, state: LearnerState) -> LearnerState:
        """Take note of versions that were published after the checkpoint was written."""
        for record in self.registry.list():
            if self._is_own(record) and record.number > state.published_number:
                state = _note(state, record, record.created_at.timestamp())
        return state

    def _new_trainer(self, version: str) -> Trainer:
        start = self.publisher.load(version, lora=self.lora, seed=self.settings.seed)
        return Trainer(
            self.publisher.base,
            start=start,
            settings=self.settings.optimiser,
            objective=self.settings.objective,
        )

    def _describe(self, batch: list[Experience], state: LearnerState) -> dict[str, float]:
        if not self._version_steps:
            self._version_steps = {record.version: record.step for record in self.registry.list()}
        staleness = [
            compute_staleness(
                learner_step=state.step,
                version_step=self._version_steps.get(e.oldest_policy_version, state.step),
            )
            for e in batch
        ]
        return {
            "reward": sum(e.reward for e in batch) / len(batch),
            "max_staleness": float(max(staleness)),
        }

    def _is_own(self, record: PolicyRecord) -> bool:
        return record.provenance.get("learner") == self.name

    def _clock(self) -> float:
        return self.now().timestamp()


def _note(state: LearnerState, record: PolicyRecord, at: float) -> LearnerState:
    return note_published(state, record.version, number=record.number, step=record.step, at=at)
