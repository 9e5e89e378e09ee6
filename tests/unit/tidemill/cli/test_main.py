import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tidemill import __version__
from tidemill.cli import main as cli
from tidemill.cli.context import load_settings
from tidemill.errors import (
    ConfigurationError,
    EventLogUnavailableError,
    IllegalTransitionError,
    NoChampionError,
    SnapshotCorruptError,
    StorageError,
    TidemillError,
)


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("x"), 2),
        (NoChampionError("x"), 1),
        (IllegalTransitionError("x"), 1),
        (SnapshotCorruptError("x"), 1),
        (StorageError("x"), 3),
        (EventLogUnavailableError("x"), 3),
    ],
)
def test_each_error_has_its_exit_code(error: TidemillError, code: int) -> None:
    assert cli.exit_code_of(error) == code


def test_wrong_settings_end_with_code_2_and_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tidemill.toml").write_text("modle = 'tide'")
    assert cli.main(["db", "check"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tidemill: wrong settings")
    assert "modle: unknown key" in said.err


def test_wrong_usage_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["no-such-command"])
    assert caught.value.code == 2
    assert "no-such-command" in capsys.readouterr().err


def test_settings_file_and_data_folder_come_from_the_command_line() -> None:
    Path("mine.toml").write_text('model = "house"\ndata = "file"')
    seen = []
    app = typer.Typer()
    app.callback()(cli.root)

    @app.command()
    def look(ctx: typer.Context) -> None:
        seen.append(load_settings(ctx).shared)

    result = CliRunner(env={"TIDEMILL_DATA": None}).invoke(
        app, ["--settings", "mine.toml", "--data", "here", "look"]
    )
    assert result.exit_code == 0
    assert (seen[0].model, seen[0].data) == ("house", Path("here"))


def test_database_is_upgraded_then_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["db", "check"]) == 3
    for command, code in (("upgrade", 0), ("check", 0)):
        with pytest.raises(SystemExit) as caught:
            cli.main(["db", command])
        assert caught.value.code == code
    assert "schema none -> " in capsys.readouterr().out


def test_help_is_fast_since_no_stage_is_imported() -> None:
    script = (
        "import sys; import tidemill.cli.main;"
        "heavy = {'torch', 'transformers', 'mlflow', 'sqlalchemy', 'fastapi'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_version_is_told() -> None:
    result = CliRunner().invoke(cli.app, ["--version"])
    assert result.output.strip() == __version__
