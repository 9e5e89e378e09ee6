from pathlib import Path

import pytest

from learner.base_version import ensure_base_version, has_base
from tests.tiny_model import tiny_base
from tidemill.errors import ConfigurationError
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database


def test_a_base_becomes_a_candidate_once(tmp_path: Path, database: Database) -> None:
    shared = SharedSettings(data=tmp_path)
    assert not has_base(shared)
    with pytest.raises(ConfigurationError, match="no base"):
        ensure_base_version(shared, database)
    tiny_base(shared.base_path)
    assert has_base(shared)
    version = ensure_base_version(shared, database)
    assert ensure_base_version(shared, database) == version
    (record,) = PolicyRegistry(database, model="tide", tenant="default").list()
    assert (record.version, record.status, record.snapshot) == (version, "candidate", None)
    assert record.provenance["licence"] == "Apache-2.0"


def test_another_base_under_the_same_name_is_refused(tmp_path: Path, database: Database) -> None:
    shared = SharedSettings(data=tmp_path)
    tiny_base(shared.base_path)
    ensure_base_version(shared, database)
    tiny_base(shared.base_path, seed=1)
    with pytest.raises(ConfigurationError, match="put the old base back"):
        ensure_base_version(shared, database)
