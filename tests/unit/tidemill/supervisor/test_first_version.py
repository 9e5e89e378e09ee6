import json
from pathlib import Path

import pytest

from tidemill.contracts.lifecycle import PolicyStatus
from tidemill.errors import ConfigurationError
from tidemill.registry import PolicyRegistry, Why
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.supervisor.first_version import find_missing, read_base_digest, register_base

_DIGEST = "ab" * 32
_WHY = Why(reason="test", actor="operator")


@pytest.fixture
def shared(tmp_path: Path) -> SharedSettings:
    return SharedSettings(data=tmp_path)


@pytest.fixture
def registry(database: Database) -> PolicyRegistry:
    return PolicyRegistry(database, model="tide", tenant="default")


def _write_base(shared: SharedSettings, text: str | None = None) -> None:
    shared.base_path.mkdir(parents=True, exist_ok=True)
    record = json.dumps({"digest": _DIGEST}) if text is None else text
    (shared.base_path / "base.json").write_text(record)


def test_no_folder_is_no_base(shared: SharedSettings) -> None:
    assert read_base_digest(shared) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '"text"'])
def test_a_broken_record_is_refused(shared: SharedSettings, text: str) -> None:
    _write_base(shared, text)
    with pytest.raises(ConfigurationError, match="import or train the base again"):
        read_base_digest(shared)


def test_the_base_becomes_candidate_v0_once(registry: PolicyRegistry) -> None:
    first = register_base(registry, _DIGEST)
    assert (first.version, first.status) == (f"v0-{_DIGEST[:12]}", PolicyStatus.CANDIDATE)
    assert register_base(registry, _DIGEST) == first
    assert len(registry.list()) == 1


def test_another_base_is_refused(registry: PolicyRegistry) -> None:
    register_base(registry, _DIGEST)
    with pytest.raises(ConfigurationError, match=r"digest cdcdcdcdcdcd, but .* v0-abababababab"):
        register_base(registry, "cd" * 32)


def test_what_is_missing_follows_the_state(
    shared: SharedSettings, registry: PolicyRegistry
) -> None:
    assert "tidemill base train" in (find_missing(shared, registry) or "")
    _write_base(shared)
    first = register_base(registry, _DIGEST)
    assert "declare `environment`" in (find_missing(shared, registry) or "")
    with_suite = shared.model_copy(update={"environment": "package.module:attribute"})
    assert "offline suite decides" in (find_missing(with_suite, registry) or "")
    registry.reject(first.version, why=_WHY)
    assert "tidemill backfill" in (find_missing(shared, registry) or "")


def test_with_a_champion_nothing_is_missing(
    shared: SharedSettings, registry: PolicyRegistry
) -> None:
    _write_base(shared)
    registry.promote(register_base(registry, _DIGEST).version, why=_WHY)
    assert find_missing(shared, registry) is None
