"""The tiny base, loaded once for all tests of serving."""

import pytest

from tests.tiny_model import load_tiny_base
from tidemill.policy.base_model import BaseModel


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    """A tiny random base."""
    return load_tiny_base(tmp_path_factory.mktemp("base") / "base")
