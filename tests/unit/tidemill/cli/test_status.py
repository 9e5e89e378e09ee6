import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tidemill.cli.main import app
from tidemill.contracts.events import INTERACTIONS, TOPICS
from tidemill.eventlog.opening import open_log
from tidemill.registry import PolicyRecord, PolicyRegistry, Why
from tidemill.settings import SharedSettings
from tidemill.storage import schema
from tidemill.storage.database import Database
from tidemill.storage.heartbeats import write_heartbeat
from tidemill.storage.tables import HeartbeatRow

_DIGEST = "ab" * 32


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Database:
    """The database of the default data folder, with tables."""
    monkeypatch.chdir(tmp_path)
    shared = SharedSettings()
    shared.data.mkdir()
    database = Database(shared.database_url)
    schema.upgrade(database)
    return database


def _beat(database: Database, part: str, *, ready: bool) -> None:
    now = datetime.now(UTC)
    sign = HeartbeatRow(
        part=part, pid=7, ready=ready, detail="d", counters={}, started_at=now, at=now
    )
    with database.transaction() as session:
        write_heartbeat(session, sign)


def test_status_says_no_while_a_part_is_not_ready(database: Database) -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["status"]).exit_code == 1
    _beat(database, "gate", ready=True)
    assert runner.invoke(app, ["status"]).exit_code == 0
    _beat(database, "serving", ready=False)
    result = runner.invoke(app, ["status"])
    assert result.exit_code == 1
    assert "not ready" in result.output
    assert "no base model" in result.output


def test_status_reports_versions_and_lag_for_programs(database: Database) -> None:
    _beat(database, "gate", ready=True)
    registry = PolicyRegistry(database, model="tide", tenant="default")
    first = PolicyRecord(version=f"v0-{_DIGEST[:12]}", digest=_DIGEST, base_digest=_DIGEST)
    registry.register(first)
    registry.promote(first.version, why=Why(reason="test", actor="operator"))
    log = open_log(SharedSettings())
    log.create_topics(TOPICS)
    sink = log.sink()
    sink.append(INTERACTIONS, "key", b"value").result(10)
    sink.close()
    log.close()
    report = json.loads(CliRunner().invoke(app, ["status", "--json"]).output)
    assert report["champion"] == first.version
    assert report["versions"] == {"champion": 1}
    assert report["lag"] == {"tidemill.interactions": 1, "tidemill.feedback": 0}
    assert report["lag_s"]["tidemill.interactions"] > 0
    assert report["lag_s"]["tidemill.feedback"] == 0
    assert [part["state"] for part in report["parts"]] == ["ready"]
