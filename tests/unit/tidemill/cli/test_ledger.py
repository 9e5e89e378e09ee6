import json
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
