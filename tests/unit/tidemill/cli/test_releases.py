import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.live_traffic import LiveTraffic
from tidemill.cli.main import app, main
from tidemill.contracts.events import Arm
from tidemill.registry import GateRun, PolicyRecord, PolicyRegistry, Why
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade

VERSIONS = ("v1-000000000001", "v2-000000000002", "v3-000000000003")


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PolicyRegistry:
    """A data folder with a champion, a challenger and a candidate."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "220")
    (tmp_path / ".tidemill").mkdir()
    database = Database(f"sqlite:///{tmp_path / '.tidemill' / 'tidemill.db'}")
    upgrade(database)
    registry = PolicyRegistry(database, model="tide", tenant="default")
    for number, version in enumerate(VERSIONS, 1):
        registry.register(
            PolicyRecord(
                version=version,
                digest=f"{number:012x}" + "0" * 52,
                base_digest="b" * 64,
                parent=VERSIONS[number - 2] if number > 1 else None,
                step=10 * number,
                provenance={
                    "origin": "live",
                    "num_experiences": 64,
                    "metrics": {"max_staleness": 3.0, "kl_reference": 0.02},
                },
            )
        )
    passed = GateRun(
        stage="offline", verdict="promote", reasons=("good enough",), evidence={"score": 0.8}
    )
    why = Why(reason="good enough", actor="gate", evidence=passed)
    registry.promote(VERSIONS[0], why=why)
    registry.start_canary(VERSIONS[1], share=0.5, alpha=0.05, why=why)
    traffic = LiveTraffic(database)
    traffic.serve(VERSIONS[0], Arm.CHAMPION, [1.0, 0.0] * 10)
    traffic.serve(VERSIONS[1], Arm.CHALLENGER, [1.0] * 10, num_tokens=30)
    return registry


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["releases", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_shows_every_version(registry: PolicyRegistry) -> None:
    del registry
    output = run("list")
    for text in (*VERSIONS, "champion", "challenger", "candidate", "0.800", "0.500"):
        assert text in output
    rows = json.loads(run("list", "--json"))
    assert [row["version"] for row in rows] == list(VERSIONS)
    assert rows[2]["live_acceptance"] is None


def test_show_tells_moves_and_decisions(registry: PolicyRegistry) -> None:
    del registry
    output = run("show", "v1")
    assert "good enough" in output
    assert "offline" in output
    document = json.loads(run("show", "1", "--json"))
    assert document["moves"][0]["move"] == "promote"
    assert document["decisions"][0]["evidence"] == {"score": 0.8}


def test_compare_puts_two_side_by_side(registry: PolicyRegistry) -> None:
    del registry
    output = run("compare", "v1", "v2")
    lines = {line.split("│")[1].strip(): line for line in output.splitlines() if "│" in line}
    assert "0.500" in lines["live acceptance"]
    assert "1.000" in lines["live acceptance"]
    assert "to" in lines["interval (95 %)"]
    for name in (
        "offline score",
        "malformed rate",
        "mean length (tokens)",
        "events trained on",
        "staleness (steps)",
        "KL to reference",
        "parent",
        "verdict",
    ):
        assert name in lines
    first, second = json.loads(run("compare", "v1", "v2", "--json"))
    assert (first["mean_tokens"], second["mean_tokens"]) == (20.0, 30.0)
    assert first["live_low"] < 0.5 < first["live_high"]


def test_promote_needs_force_and_a_reason(
    registry: PolicyRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = CliRunner().invoke(app, ["releases", "promote", "v3", "--reason", "drill"])
    assert refused.exit_code == 2
    assert "--force" in refused.output
    assert registry.traffic().champion == VERSIONS[0]
    assert "is champion" in run("promote", "v3", "--force", "--reason", "drill")
    last = registry.transitions(VERSIONS[2])[-1]
    assert (last.reason, last.actor) == ("drill", "operator")
    assert main(["releases", "promote", "v9", "--force", "--reason", "x"]) == 1
    assert "no version v9" in capsys.readouterr().err


def test_rollback_restores_and_refuses_when_there_is_nothing_before(
    registry: PolicyRegistry, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.promote(VERSIONS[1], why=Why(reason="x", actor="test"))
    document = json.loads(run("rollback", "--reason", "complaints", "--json"))
    assert document == {"champion": VERSIONS[0]}
    assert main(["releases", "rollback", "--reason", "again"]) == 1
    assert "no version to return to" in capsys.readouterr().err


def test_an_empty_registry_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".tidemill").mkdir()
    upgrade(Database(f"sqlite:///{tmp_path / '.tidemill' / 'tidemill.db'}"))
    assert "no versions yet" in run("list")
