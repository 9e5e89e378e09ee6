"""`tidemill base`: train, import, show, each with the exit code that other programs rely on."""

import json
from pathlib import Path

import pytest

from tests.tiny_model import tiny_base
from tidemill.cli.main import main


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDEMILL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TIDEMILL_POLICY__DEVICE", "cpu")
    monkeypatch.setenv("TIDEMILL_ENVIRONMENT", "examples.command_assistant.environment:environment")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; return exit code, stdout, stderr."""
    try:
        code = main(["base", *arguments])
    except SystemExit as end:
        code = int(end.code or 0)
    streams = capsys.readouterr()
    return code, streams.out, streams.err


def test_a_base_is_trained_shown_and_not_lost_by_accident(
    capsys: pytest.CaptureFixture[str],
) -> None:
    few = ("train", "--steps", "2", "--num-examples", "32", "--hidden-size", "32", "--layers", "1")
    code, out, err = run(capsys, *few)
    assert code == 0, err
    assert "2 steps" in out
    code, out, _ = run(capsys, "show", "--json")
    facts = json.loads(out)
    assert code == 0
    assert facts["version"] == "v0-" + facts["digest"][:12]
    assert facts["licence"] == "Apache-2.0"
    code, _, err = run(capsys, *few)
    assert code == 2
    assert "--force" in err
    assert run(capsys, *few, "--force", "--seed", "3")[0] == 0
    assert json.loads(run(capsys, "show", "--json")[1])["digest"] != facts["digest"]


def test_a_model_is_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tiny_base(tmp_path / "theirs")
    code, _, err = run(capsys, "import", str(source))
    assert code == 2
    assert "--licence" in err
    code, out, err = run(capsys, "import", str(source), "--licence", "MIT")
    assert (code, err) == (0, "")
    assert "max_difference" in out
    assert "MIT" in run(capsys, "show")[1]


def test_a_template_that_hides_tools_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_base(tmp_path / "theirs")
    (tmp_path / "plain.jinja").write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    arguments = ("import", str(source), "--licence", "MIT", "--chat-template")
    code, _, err = run(capsys, *arguments, "plain.jinja")
    assert code == 0
    assert "ignores tools" in err
    assert run(capsys, *arguments, "chatml-tools", "--force")[0] == 0
    code, _, err = run(capsys, *arguments, "absent.jinja", "--force")
    assert code == 2
    assert "chatml-tools" in err


def test_a_damaged_base_is_a_no(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "show")[0] == 2
    tiny_base(tmp_path / "data" / "base")
    (tmp_path / "data" / "base" / "chat_template.jinja").write_text("changed")
    code, _, err = run(capsys, "show")
    assert code == 1
    assert "tokenizer_digest" in err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_a_training_takes_some_time_and_ends(
    seconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "train", "--seconds", seconds)
    assert code == 2
    assert "--seconds" in err


def test_an_environment_without_examples_cannot_train(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TIDEMILL_ENVIRONMENT", "tests.unit.tidemill.cli.test_base:Mute")
    code, _, err = run(capsys, "train", "--steps", "1")
    assert code == 2
    assert "supervised_examples" in err


class Mute:
    """An environment without examples."""

    name = "mute"
    tasks = verify = None
