from pathlib import Path

import pytest

from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.supervisor.missing import find_missing

_DIGEST = "ab" * 32
_WHY = Why(reason="test", actor="operator")


@pytest.fixture
def shared(tmp_path: Path) -> SharedSettings:
    return SharedSettings(data=tmp_path)


@pytest.fixture
def registry(database: Database) -> PolicyRegistry:
    return PolicyRegistry(database, model="tide", tenant="default")


def _write_base(shared: SharedSettings) -> None:
    shared.base_path.mkdir(parents=True, exist_ok=True)
    (shared.base_path / "base.json").write_text("{}")


def _register(registry: PolicyRegistry) -> str:
    return registry.register(
        PolicyRecord(version=f"v0-{_DIGEST[:12]}", digest=_DIGEST, base_digest=_DIGEST)
    ).version


def test_what_is_missing_follows_the_state(
    shared: SharedSettings, registry: PolicyRegistry
) -> None:
    assert "tidemill base train" in (find_missing(shared, registry) or "")
    _write_base(shared)
    assert "declare `environment`" in (find_missing(shared, registry) or "")
    with_suite = shared.model_copy(update={"environment": "package.module:attribute"})
    assert "offline suite decides" in (find_missing(with_suite, registry) or "")
    registry.reject(_register(registry), why=_WHY)
    assert "tidemill backfill" in (find_missing(with_suite, registry) or "")


def test_with_a_champion_nothing_is_missing(
    shared: SharedSettings, registry: PolicyRegistry
) -> None:
    _write_base(shared)
    registry.promote(_register(registry), why=_WHY)
    assert find_missing(shared, registry) is None
