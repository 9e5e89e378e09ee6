import base64
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.opening import open_log
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.schema import upgrade

JUNK = b"\x1b[31m\xff junk"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """An installation with two dead letters: junk, and a metric that was not declared."""
    path = tmp_path / "tidemill.toml"
    metrics = tmp_path / "metrics.toml"
    path.write_text(f'data = "{tmp_path}"\nmetrics = "{metrics}"\n')
    metrics.write_text(METRICS)
    database = Database(SharedSettings(data=tmp_path).database_url)
    upgrade(database)
    database.close()
    interaction = make_interaction()
    feedback = make_feedback(interaction, metric="kept", feedback_id="k")
    work(
        tmp_path,
        (INTERACTIONS, interaction.key, encode(interaction)),
        (FEEDBACK, interaction.key, JUNK),
        (FEEDBACK, interaction.key, encode(feedback)),
    )
    return path


def work(data: Path, *records: tuple[str, str, bytes]) -> dict[str, int]:
    """Append records, take all there is into rows; return the ledger's dead letters by state."""
    shared = SharedSettings(data=data)
    database, log = Database(shared.database_url), open_log(shared)
    log.create_topics(TOPICS)
    sink = log.sink()
    for record in records:
        sink.append(*record).result(10)
    sink.close()
    metrics = parse_metrics((data / "metrics.toml").read_text())
    member = Member(database, log, IngestSettings(), metrics)
    while member.read_once(timeout_s=0.2):
        pass
    member.close()
    taken = take_ledger(database, log)
    log.close()
    database.close()
    assert taken.problems == []
    return taken.letters


def call(settings: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["--settings", str(settings), "dead-letters", *arguments])


def rows(settings: Path, *arguments: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(call(settings, "list", "--json", *arguments).stdout)
    return found


def test_letters_are_listed_by_what_is_asked_for(settings: Path) -> None:
    assert [row["reason"] for row in rows(settings)] == ["undecodable", "unknown_metric"]
    assert [row["record_id"] for row in rows(settings, "--reason", "unknown_metric")] == ["k"]
    assert [row["reason"] for row in rows(settings, "--limit", "1")] == ["unknown_metric"]
    assert len(rows(settings, "--since", "1h")) == 2
    assert rows(settings, "--since", "2100-01-01") == []
    assert "undecodable" in call(settings, "list").stdout
    assert call(settings, "list", "--since", "soon").exit_code == 2
    assert call(settings, "list", "--reason", "boredom").exit_code == 2


def test_a_letter_is_shown_whole_and_does_nothing_to_the_terminal(settings: Path) -> None:
    name = str(rows(settings)[0]["letter"])
    text = call(settings, "show", name)
    assert text.exit_code == 0
    assert "\\x1b[31m\\xff junk" in text.stdout
    assert "\x1b" not in text.stdout
    facts = json.loads(call(settings, "show", name, "--json").stdout)
    assert base64.b64decode(facts["payload_base64"]) == JUNK
    assert facts["topic"] == FEEDBACK
    assert call(settings, "show", f"{FEEDBACK}/0/999").exit_code == 1
    assert call(settings, "show", "nonsense").exit_code == 2


def test_a_repaired_letter_is_replayed_and_counted_once(settings: Path) -> None:
    assert call(settings, "replay", "--reason", "unknown_metric").exit_code == 1
    with (settings.parent / "metrics.toml").open("a") as metrics:
        metrics.write('\n[metrics.kept]\ntype = "bool"\nwindow_s = 60\noptional = true\n')
    done = call(settings, "replay", "--reason", "unknown_metric", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)[0]["ending"] == "replayed"
    assert work(settings.parent) == {"open": 1, "replayed": 1, "returned": 0, "dropped": 0}
    assert [row["reason"] for row in rows(settings)] == ["undecodable"]
    closed = rows(settings, "--all")[1]
    assert (closed["state"], bool(closed["closed_by"]), bool(closed["closed_at"])) == (
        *("replayed", True),
        True,
    )


def test_a_letter_is_dropped_with_a_reason(settings: Path) -> None:
    name = str(rows(settings)[0]["letter"])
    assert call(settings, "replay", name).exit_code == 1
    assert call(settings, "drop", name).exit_code == 2
    assert call(settings, "drop", name, "--reason", " ").exit_code == 2
    assert call(settings, "drop", name, "--reason", "a scanner's noise").exit_code == 0
    assert call(settings, "drop", name, "--reason", "twice").exit_code == 1
    assert work(settings.parent)["dropped"] == 1


def test_a_replay_says_which(settings: Path) -> None:
    assert call(settings, "replay").exit_code == 2
    assert call(settings, "replay", "a/0/1", "--reason", "unmatched").exit_code == 2


@pytest.mark.parametrize(
    "wrong",
    [
        ("tidemill.feedback/99999999999999999999/1", "noise"),
        ("tidemill.feedback/0/99999999999999999999", "noise"),
        ("tidemill.feedback/\u0663/1", "noise"),
        ("tidemill.feedback\udcff/0/1", "noise"),
        ("tidemill.feedback/0/0", "noise\udcff"),
    ],
)
def test_what_no_row_can_hold_is_a_usage_error(settings: Path, wrong: tuple[str, str]) -> None:
    letter, reason = wrong
    assert call(settings, "drop", letter, "--reason", reason).exit_code == 2
