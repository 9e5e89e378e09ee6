"""The learner as a process: wait for a base and a champion, then train until told to stop."""

import logging
from dataclasses import dataclass
from threading import Event

from learner.base_version import ensure_base_version, has_base
from learner.checkpoints import CheckpointStore
from learner.live import Did, LiveLearner
from learner.publishing import Publisher
from learner.settings import LearnerSettings
from tidemill.errors import StorageError
from tidemill.policy.base_model import load_base
from tidemill.policy.devices import prepare_torch
from tidemill.process import Pulse, configure_logging, stop_on_signal
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.snapshots.store import SnapshotStore
from tidemill.storage.database import Database
from tidemill.storage.schema import require_current_schema

_log = logging.getLogger(__name__)


def run(shared: SharedSettings, settings: LearnerSettings) -> int:
    """Learn until SIGTERM; the step in progress is finished first.

    Raises:
        ConfigurationError: the base does not fit the registry or this machine.
        StorageError: the database does not have the current tables.
        SnapshotCorruptError: the checkpoint or the champion's snapshot is damaged.
    """
    configure_logging("learner")
    stop = stop_on_signal()
    prepare_torch(shared.policy)
    database = Database(shared.database_url)
    require_current_schema(database)
    with Pulse(database, "learner") as pulse:
        while not has_base(shared):
            pulse.detail = f"no base in {shared.base_path}"
            if stop.wait(settings.poll_s):
                return 0
        learner = open_learner(shared, settings, database)
        _Loop(learner, pulse, stop).run()
    database.close()
    return 0


def open_learner(
    shared: SharedSettings, settings: LearnerSettings, database: Database
) -> LiveLearner:
    """Load the base, register it as v0 if it is new, and return the learner, not loaded yet."""
    ensure_base_version(shared, database)
    registry = PolicyRegistry(database, model=shared.model, tenant=shared.tenant)
    base = load_base(shared.base_path, settings=shared.policy)
    return LiveLearner(
        settings=settings,
        lora=shared.policy.lora,
        database=database,
        registry=registry,
        publisher=Publisher(base, SnapshotStore(shared.snapshots_path), registry),
        checkpoints=CheckpointStore(shared.data / "checkpoints", f"{shared.model}/{shared.tenant}"),
    )


@dataclass(slots=True)
class _Loop:
    """Turns until the stop; a refusal of the database means: load again, with a pause."""

    learner: LiveLearner
    pulse: Pulse
    stop: Event
    is_loaded: bool = False

    def run(self) -> None:
        while not self.stop.is_set():
            did = self._turn()
            if did in (None, Did.NO_CHAMPION, Did.WAITED):
                self.stop.wait(self.learner.settings.poll_s)

    def _turn(self) -> Did | None:
        try:
            if not self.is_loaded:
                self.learner.load()
                self.is_loaded = True
            did = self.learner.turn()
        except StorageError as error:
            _log.warning("nothing recorded, loading the last recorded state: %s", error)
            self.is_loaded = False
            return None
        self._tell(did)
        return did

    def _tell(self, did: Did) -> None:
        state = self.learner.state
        self.pulse.ready = True
        if state is None:
            self.pulse.detail = "waits for a first champion"
            return
        self.pulse.detail = (
            f"step {state.step} of lineage {state.lineage}, from {state.head_version}"
        )
        self.pulse.counters = {
            "step": state.step,
            "lineage": state.lineage,
            "num_steps_and_resets": state.serial,
            "num_unpublished_experiences": state.num_unpublished,
            "num_dropped": self.learner.num_dropped,
            **state.metrics,
        }
        if did is Did.RESET:
            _log.info("lineage %d begins at %s", state.lineage, state.start_version)
        elif did is Did.PUBLISHED:
            _log.info("published %s at step %d", state.head_version, state.step)
        elif did is Did.REFUSED:
            _log.warning("a step was refused; its batch is dropped or gone")
