"""The registry of policy versions: SQL decides, MLflow only mirrors.

`records.py` has what it speaks in, `registry.py` the moves.
"""

from tidemill.registry.records import Canary, PolicyRecord, Traffic, Transition
from tidemill.registry.registry import PolicyRegistry
from tidemill.storage.gate_runs import GateRun, StoredGateRun
from tidemill.storage.moves import Why

__all__ = [
    "Canary",
    "GateRun",
    "PolicyRecord",
    "PolicyRegistry",
    "StoredGateRun",
    "Traffic",
    "Transition",
    "Why",
]
