"""The gate as a process: passes in a loop, the tracking mirror beside it in its own thread."""

import logging
from dataclasses import dataclass
from typing import Protocol

import torch

from gating.context import GateContext
from gating.figures import describe_version
from gating.gate import Gate
from gating.settings import GatingSettings
from gating.suite import OfflineSuite
from tidemill.errors import RegistryError, StorageError
from tidemill.process import Pulse, configure_logging, stop_on_signal
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import require_current_schema
from tidemill.tracking import TrackingMirror

_log = logging.getLogger(__name__)

PART = "gate"


class OnePass(Protocol):
    """What the loop calls."""

    def run_once(self) -> list[str]:
        """Make one pass and return what happened."""
        ...


@dataclass(frozen=True, slots=True)
class _Parts:
    registry: PolicyRegistry
    gate: Gate


def run(shared: SharedSettings, settings: GatingSettings) -> int:
    """Judge candidates until SIGTERM; return the exit code."""
    configure_logging(PART)
    stop = stop_on_signal()
    database = Database(shared.database_url)
    require_current_schema(database)
    parts = _build(shared, settings, database)
    mirror = TrackingMirror(
        parts.registry, describe_version, uri=shared.tracking_uri, settings=shared.tracking
    )
    with Pulse(database, PART, ready=True, detail="the first pass") as pulse, mirror:
        while not stop.is_set():
            pulse.detail = run_pass(parts.gate)
            pulse.counters["passes"] = pulse.counters.get("passes", 0) + 1
            stop.wait(settings.look_every_s)
    database.close()
    return 0


def run_once(shared: SharedSettings, settings: GatingSettings) -> list[str]:
    """Make one pass and return what happened.

    Raises:
        StorageError: the database refused.
        RegistryError: somebody else moved a version at the same time; run it again.
    """
    database = Database(shared.database_url)
    require_current_schema(database)
    try:
        return _build(shared, settings, database).gate.run_once()
    finally:
        database.close()


def run_pass(gate: OnePass) -> str:
    """Make one pass; a refusal of database or registry is logged, and the next pass tries again."""
    try:
        return " | ".join(gate.run_once()) or "nothing to judge"
    except (StorageError, RegistryError) as error:
        _log.warning("this pass moved nobody: %s", error)
        return f"retrying: {error}"


def _build(shared: SharedSettings, settings: GatingSettings, database: Database) -> _Parts:
    torch.set_num_threads(shared.policy.num_threads)
    registry = PolicyRegistry(database, model=shared.model, tenant=shared.tenant)
    suite = OfflineSuite(shared, settings.offline)
    return _Parts(registry, Gate(GateContext(registry, settings), suite.measure))
