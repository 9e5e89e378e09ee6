"""The worker as a process with a judge: killed while it asks, then replayed."""

import threading
import time
from pathlib import Path

from typer.testing import CliRunner

from ingest.settings import IngestSettings, JudgeSettings
from tests.factories import make_feedback, make_interaction
from tests.ingest_processes import Installation, installation
from tests.scripted_judge import Says, ScriptedJudge, score, scripted_judge
from tidemill.cli.main import app
from tidemill.contracts.codec import encode
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS, InteractionServed
from tidemill.storage.experiences import fetch_experience

METRICS = """
[metrics.accepted]
type = "bool"
window_s = 0.5

[judges.helpful]
model = "judge"
votes = 4
temperature = 1.0
aggregation = "mean"

[judges.helpful.items.kind]
question = "Is it kind?"
"""
_PATIENCE_S = 60.0


def settings_for(judge: ScriptedJudge) -> IngestSettings:
    return IngestSettings(
        require_key=False,
        close_grace_s=0.1,
        poll_timeout_s=0.05,
        judge=JudgeSettings(url=judge.url, timeout_s=2, poll_s=0.05, concurrency=2),
    )


def send(made: Installation) -> InteractionServed:
    event = make_interaction()
    with made.open_log() as log:
        log.create_topics(TOPICS)
        sink = log.sink()
        sink.append(INTERACTIONS, event.key, encode(event)).result(20)
        sink.append(FEEDBACK, event.key, encode(make_feedback(event))).result(20)
        sink.close()
    return event


def wait_for_components(made: Installation, interaction_id: str) -> dict[str, float]:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with made.database.reading() as session:
            experience = fetch_experience(session, tenant="default", experience_id=interaction_id)
        if experience is not None:
            return dict(experience.components)
        time.sleep(0.05)
    raise AssertionError("no experience came")


def test_a_worker_killed_while_it_asks_loses_one_vote_at_most(tmp_path: Path) -> None:
    goes_on = threading.Event()
    stuck = Says('{"score": 0}', waits=goes_on)
    with (
        scripted_judge(score(1), stuck) as judge,
        installation(tmp_path, settings_for(judge)) as made,
    ):
        made.shared.metrics.write_text(METRICS)
        event = send(made)
        judge.usual = score(5)
        worker = made.start("worker")
        deadline = time.monotonic() + _PATIENCE_S
        while len(judge.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        made.kill(worker)
        goes_on.set()
        worker = made.start("worker")
        components = wait_for_components(made, event.interaction_id)
        assert made.stop(worker) == 0
        # The first vote was kept: (1 + 5 + 5 + 5) / 40.
        assert components == {"accepted": 1.0, "helpful": 0.4}
        assert len(judge.requests) == 5
        check_replay(made, tmp_path, judge)


def check_replay(made: Installation, folder: Path, judge: ScriptedJudge) -> None:
    """Replay through the command: the same digest, and nobody is asked."""
    file = folder / "tidemill.toml"
    file.write_text(f'data = "{made.shared.data}"\nmetrics = "{made.shared.metrics}"\n')
    asked = len(judge.requests)
    into = f"sqlite:///{folder / 'fresh.db'}"
    arguments = ["--settings", str(file), "log", "replay", "--into", into, "--compare"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "1 experience" in result.output
    assert len(judge.requests) == asked
