import json
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import update
from typer.testing import CliRunner, Result

from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.opening import open_log
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import LogOffsetRow


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An installation in which one interaction and one feedback were read."""
    shared = SharedSettings(data=tmp_path)
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\n')
    database = Database(shared.database_url)
    upgrade(database)
    log = open_log(shared)
    log.create_topics(TOPICS)
    sink = log.sink()
    interaction = make_interaction()
    sink.append(INTERACTIONS, interaction.key, encode(interaction)).result(10)
    sink.append(FEEDBACK, interaction.key, encode(make_feedback(interaction))).result(10)
    sink.close()
    member = Member(database, log, IngestSettings(), parse_metrics(METRICS))
    while member.read_once(timeout_s=0.2):
        pass
    member.close()
    log.close()
    database.close()
    return path


def call(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--settings", str(settings), "ledger", *arguments])


def test_a_balanced_ledger_is_good(settings: Path) -> None:
    result = call(settings)
    assert result.exit_code == 0
    assert "balanced" in result.stdout
    taken = json.loads(call(settings, "--json").stdout)
    assert taken["balanced"] is True
    assert taken["records"][FEEDBACK]["rows"] == 1
    assert taken["feedback"]["joined"] == 1


def test_a_difference_is_exit_1_and_said(settings: Path) -> None:
    database = Database(f"sqlite:///{settings.parent / 'tidemill.db'}")
    with database.transaction() as session:
        session.execute(update(LogOffsetRow).values(num_records=7))
    database.close()
    result = call(settings)
    assert result.exit_code == 1
    assert "does not balance" in result.stdout
    assert json.loads(call(settings, "--json").stdout)["problems"]


def test_an_empty_installation_balances(tmp_path: Path) -> None:
    path = tmp_path / "tidemill.toml"
    path.write_text(f'data = "{tmp_path}"\n')
    database = Database(f"sqlite:///{tmp_path / 'tidemill.db'}")
    upgrade(database)
    database.close()
    assert call(path).exit_code == 0


def test_states_are_told_by_hour_and_tenant_too(settings: Path) -> None:
    taken = json.loads(call(settings, "--by", "tenant", "--by", "hour", "--json").stdout)
    assert taken["balanced"] is True
    (group,) = taken["groups"]
    assert datetime.strptime(group.pop("hour"), "%Y-%m-%dT%H:00Z")
    assert group == {
        "tenant": "default",
        "interactions": {"open": 1},
        "feedback": {"joined": 1},
        "sums": {"interactions": 1, "feedback": 1},
    }
    by_tenant = call(settings, "--by", "tenant", "--since", "1h")
    assert by_tenant.exit_code == 0
    assert "1 joined" in by_tenant.stdout
    nothing = call(settings, "--by", "hour", "--since", "2100-01-01", "--json")
    assert json.loads(nothing.stdout)["groups"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        ("--by", "week"),
        ("--since", "2h"),
        ("--by", "hour", "--since", "soon"),
        ("--by", "hour", "--since", "0h"),
    ],
)
def test_wrong_options_are_refused(settings: Path, wrong: tuple[str, ...]) -> None:
    assert call(settings, *wrong).exit_code == 2
