"""Who is in quarantine, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import Rig, seconds
from tidemill.cli.main import app
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade
from tidemill.subjects import SubjectHasher, load_or_create_secret


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An installation with two feedbacks of one rater."""
    shared = SharedSettings(data=tmp_path)
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\n')
    database = Database(shared.database_url)
    upgrade(database)
    rater = SubjectHasher(load_or_create_secret(shared)).subject("default", "user-17")
    rig = Rig(database)
    for _ in range(2):
        interaction = make_interaction()
        rig.log.put(interaction, seconds(0))
        rig.log.put(make_feedback(interaction, rater=rater), seconds(1))
    rig.read()
    database.close()
    return path


def call(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--settings", str(settings), "quarantine", *arguments])


def listed(settings: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(call(settings, "list", "--json", *arguments).stdout)
    return found


def test_a_rater_goes_in_and_out_again(settings: Path) -> None:
    assert call(settings, "add", "rater", "user-17", "--reason", "a bot").exit_code == 0
    (stay,) = listed(settings)
    assert (stay["kind"], stay["reason"], stay["num_feedback"]) == ("rater", "a bot", 2)
    assert stay["who"] != "user-17"
    assert stay["added_by"]
    assert "rater" in call(settings, "list").stdout
    again = call(settings, "add", "rater", stay["who"], "--hashed", "--reason", "again")
    assert (again.exit_code, "already" in again.output) == (1, True)
    assert call(settings, "remove", str(stay["id"]), "--reason", "no bot").exit_code == 0
    assert listed(settings) == []
    (ended,) = listed(settings, "--all")
    assert (ended["removed_reason"], bool(ended["removed_at"])) == ("no bot", True)
    assert call(settings, "remove", str(stay["id"]), "--reason", "twice").exit_code == 1
    assert call(settings, "add", "rater", "user-17", "--reason", "a bot").exit_code == 0


@pytest.mark.parametrize("name", ["", "t" * 129, "a\0b"])
def test_a_tenant_that_nobody_can_have_is_refused(settings: Path, name: str) -> None:
    result = call(settings, "add", "tenant", "--tenant", name, "--reason", "r")
    assert result.exit_code == 2
    assert "Invalid value for --tenant" in result.output
    assert listed(settings) == []


def test_a_whole_tenant(settings: Path) -> None:
    assert call(settings, "add", "tenant", "--tenant", "default", "--reason", "r").exit_code == 0
    (stay,) = listed(settings)
    assert (stay["who"], stay["num_feedback"]) == ("default", 2)


@pytest.mark.parametrize(
    "wrong", [("robot", "x"), ("rater",), ("subject",), ("tenant", "x"), ("rater", "")]
)
def test_wrong_names_are_refused(settings: Path, wrong: tuple[str, ...]) -> None:
    assert call(settings, "add", *wrong, "--reason", "r").exit_code == 2
    assert listed(settings) == []


@pytest.mark.parametrize(
    "wrong",
    [
        ("add", "rater", "u\udcff", "--reason", "r"),
        ("add", "rater", " ", "--reason", "r"),
        ("add", "rater", "u", "--reason", "r\udcff"),
        ("add", "rater", "u", "--reason", " "),
        ("add", "rater", "u", "--reason", "r", "--tenant", "t\udcff"),
        # In quarantine it would be, and without any effect.
        ("add", "rater", "user-17", "--hashed", "--reason", "r"),
        ("add", "rater", "A" * 32, "--hashed", "--reason", "r"),
        ("remove", "1", "--reason", "r\udcff"),
        ("remove", str(2**31), "--reason", "r"),
    ],
)
def test_what_no_row_can_hold_or_nobody_has_is_a_usage_error(
    settings: Path, wrong: tuple[str, ...]
) -> None:
    assert call(settings, *wrong).exit_code == 2
    assert listed(settings) == []
