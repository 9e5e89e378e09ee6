import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidemill.cli.main import app
from tidemill.errors import ConfigurationError
from tidemill.storage.database import Database
from tidemill.storage.keys import authenticate
from tidemill.storage.schema import upgrade


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\ntenant = "acme"\n')
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    upgrade(database)
    database.close()
    return path


def call(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--settings", str(settings), "keys", *arguments])


def test_a_key_is_made_listed_and_revoked(settings: Path) -> None:
    made = call(settings, "create", "--scope", "read", "--scope", "completions", "--label", "web")
    assert made.exit_code == 0
    text = made.stdout.strip()
    (row,) = json.loads(call(settings, "list", "--json").stdout)
    assert (row["tenant"], row["label"], row["revoked_at"]) == ("acme", "web", None)
    assert row["scopes"] == ["completions", "read"]
    assert text.startswith(f"tdm_{row['id']}_")
    assert row["id"] in call(settings, "list").stdout
    assert call(settings, "revoke", row["id"]).exit_code == 0
    assert call(settings, "revoke", row["id"]).exit_code == 1
    database = Database(f"sqlite:///{settings.parent / 'tidemill.db'}")
    with database.reading() as session:
        assert authenticate(session, text) is None
    database.close()


def test_the_audit_tells_who_did_what(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    secret = call(settings, "create", "--scope", "read", "--label", "web").stdout.strip()
    call(settings, "create", "--scope", "admin")
    key_id = secret.split("_")[1]
    call(settings, "revoke", key_id)
    result = call(settings, "audit", "--json")
    assert secret.split("_", 2)[2] not in result.stdout
    rows = json.loads(result.stdout)
    assert [row["action"] for row in rows] == ["created", "created", "revoked"]
    assert {row["actor"] for row in rows} == {"ann"}
    of_one = json.loads(call(settings, "audit", "--json", "--key", key_id).stdout)
    assert of_one == [rows[0], rows[2]]
    assert (of_one[0]["scopes"], of_one[0]["label"]) == (["read"], "web")
    assert key_id in call(settings, "audit").stdout


def test_a_key_may_belong_to_another_tenant(settings: Path) -> None:
    call(settings, "create", "--scope", "read", "--tenant", "other")
    (row,) = json.loads(call(settings, "list", "--json").stdout)
    assert row["tenant"] == "other"


def test_an_unknown_scope_is_refused(settings: Path) -> None:
    result = call(settings, "create", "--scope", "everything")
    assert isinstance(result.exception, ConfigurationError)
    assert json.loads(call(settings, "list", "--json").stdout) == []


def test_without_tables_nothing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\n')
    result = call(path, "create", "--scope", "read")
    assert isinstance(result.exception, ConfigurationError)
