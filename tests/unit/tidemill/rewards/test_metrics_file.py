from pathlib import Path

import pytest

from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics_file import load_metrics


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_text('[metrics.accepted]\ntype = "bool"\nwindow_s = 10\n')
    assert set(load_metrics(path).metrics) == {"accepted"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere.toml.*tidemill init"):
        load_metrics(tmp_path / "nowhere.toml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_metrics(path)
