from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill.cli.main import app
from tidemill.contracts.events import TOPICS


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_check_says_no_until_topics_are_there() -> None:
    runner = CliRunner()
    before = runner.invoke(app, ["topics", "check"])
    assert before.exit_code == 1
    assert "tidemill topics apply" in before.output
    assert runner.invoke(app, ["topics", "apply"]).exit_code == 0
    after = runner.invoke(app, ["topics", "check"])
    assert after.exit_code == 0
    assert after.output.count("as declared") == len(TOPICS)


def test_another_number_of_partitions_is_told() -> None:
    runner = CliRunner()
    runner.invoke(app, ["topics", "apply"])
    Path("tidemill.toml").write_text("[log]\nkind = 'embedded'\nnum_partitions = 8\n")
    result = runner.invoke(app, ["topics", "check"])
    assert result.exit_code == 1
    assert f"{TOPICS[0]}: partitions is 4, declared 8" in result.output
    assert "topics apply" not in result.output
    # Nothing puts that right.
    again = runner.invoke(app, ["topics", "apply"])
    assert again.exit_code == 1
    assert "put right" not in again.output
