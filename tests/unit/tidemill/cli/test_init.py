import re
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill.cli.main import app
from tidemill.cli.settings import Settings, read_settings
from tidemill.rewards.metrics_file import load_metrics, parse_metrics

_TEMPLATES = resources.files("tidemill.cli").joinpath("templates")
_NEEDED_BY_OTHERS = {"environment", "url", "uri", "retention_s", "retention_bytes", "api_key_env"}
"""Shown with a made-up value, since their default is nothing."""


def _uncommented(name: str) -> str:
    """Return a template with every default that it shows switched on."""
    text = _TEMPLATES.joinpath(name).read_text("utf-8")
    return re.sub(r"^#(?=[\w\[])", "", text, flags=re.MULTILINE)


def test_init_writes_both_files_and_they_are_valid(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(tmp_path / "new")])
    assert result.exit_code == 0
    assert read_settings(tmp_path / "new" / "tidemill.toml").model == "tide"
    assert load_metrics(tmp_path / "new" / "metrics.toml").metrics["accepted"].weight == 1
    assert result.output.index("`environment`") < result.output.index("`tidemill up`")


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "tidemill.toml").write_text("mine")
    result = CliRunner().invoke(app, ["init", str(tmp_path)])
    assert result.exit_code == 0
    assert "left as it is" in result.output
    assert (tmp_path / "tidemill.toml").read_text() == "mine"
    assert (tmp_path / "metrics.toml").exists()


def test_every_default_in_the_template_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = tomllib.loads(_uncommented("tidemill.toml"))
    defaults = Settings().model_dump(mode="json")

    def compare(shown: dict[str, object], default: dict[str, object], path: str) -> None:
        for key, value in shown.items():
            if isinstance(value, dict):
                inner = default[key]
                assert isinstance(inner, dict)
                compare(value, inner, f"{path}{key}.")
            elif key in _NEEDED_BY_OTHERS:
                assert default[key] is None
            else:
                assert value == default[key], f"{path}{key}"

    compare(shown, defaults, "")


def test_every_metric_in_the_template_is_valid() -> None:
    declared = parse_metrics(_uncommented("metrics.toml")).metrics
    assert set(declared) == {"accepted", "kept", "undone", "seconds_to_solution", "remark"}
