import pytest

from gating.context import GateContext
from gating.decisions import Decision
from gating.settings import GatingSettings
from tidemill.contracts.lifecycle import Verdict
from tidemill.registry import PolicyRegistry
from tidemill.storage.database import Database


def test_only_holds_are_noted_as_holds(database: Database) -> None:
    registry = PolicyRegistry(database, model="tide", tenant="default")
    context = GateContext(registry, GatingSettings())
    with pytest.raises(ValueError, match="promote is no hold"):
        context.note_hold("v1-000000000001", "offline", Decision(Verdict.PROMOTE, ()), {})
