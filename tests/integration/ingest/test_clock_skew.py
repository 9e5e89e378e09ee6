"""Producers and API processes whose clocks are an hour off change nothing but recorded times."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from examples.servers.starting import MissingServerError
from ingest.frozen import FrozenLog
from ingest.intake import TOPICS_READ
from ingest.member import Member
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.run import SETTINGS
from tests.chaos.stacks import PRODUCTION
from tests.chaos.traffic import METRICS
from tests.factories import NOW, VERSION, make_interaction
from tests.servers import missing_server
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FeedbackReceived
from tidemill.eventlog.base import EventLog
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience, fetch_experience_digests
from tidemill.storage.tables import FeedbackRow

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

TRUE, SKEWED = (0.0, 0.0), (3600.0, -3600.0)
"""How far ahead, in seconds, the clocks of two producers go, and those of the APIs they send to."""
SERVED = [make_interaction().interaction_id for _ in range(20)]
NUM_FEEDBACK = 200
LONG_WINDOWS = parse_metrics(re.sub(r"window_s = \d+", "window_s = 3600", METRICS))
"""However slow the machine is: what is late would depend on it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the traffic."""

    digests: dict[str, str]
    rewards: dict[str, float]
    states: dict[str, str]
    order: list[str]
    """Feedback ids, as votes are counted."""
    said_at: dict[str, datetime | None]
    received_at: dict[str, datetime]


def interaction(number: int, moment: datetime) -> dict[str, Any]:
    return {
        "interaction_id": SERVED[number],
        "policy_version": VERSION,
        "consent": True,
        "content": {"messages": [], "completion": "lights are on"},
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4],
        "behaviour_logprobs": [-0.5, -0.25],
        "sampling": {"temperature": 1.0, "max_tokens": 8},
        "served_at": moment.isoformat(),
    }


def feedback(rng: random.Random, number: int, moment: datetime) -> dict[str, Any]:
    metric = rng.choice(("accepted", "stars"))
    return {
        "feedback_id": f"f-{number}",
        "interaction_id": rng.choice(SERVED),
        "metric": metric,
        "value": rng.random() < 0.5 if metric == "accepted" else rng.uniform(1, 5),
        "rater": f"rater-{rng.randrange(3)}",
        "at": moment.isoformat(),
    }


def traffic(ahead_s: Sequence[float]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield producer, path and body; the same but for the times that a producer's clock tells."""
    rng = random.Random(1)
    for number in range(NUM_FEEDBACK):
        producer = rng.randrange(2)
        moment = NOW + timedelta(seconds=number + ahead_s[producer])
        # Feedback on what is not served yet comes early.
        yield producer, "/v1/feedback", feedback(rng, number, moment)
        if number < len(SERVED):
            yield producer, "/v1/interactions", interaction(number, moment)


def send(cluster: Cluster, ahead_s: Sequence[float]) -> None:
    """Send one after the other, so that the log has them in this order."""
    headers = {"authorization": f"Bearer {cluster.create_key()}"}
    with httpx.Client(headers=headers, timeout=30) as http:
        for producer, path, body in traffic(ahead_s):
            answer = http.post(cluster.fleet.urls[producer] + path, json=body)
            assert answer.status_code == 202, answer.text


def join(log: EventLog, folder: Path) -> Outcome:
    """Take the log into rows, and close everything tomorrow."""
    database = Database(f"sqlite:///{folder / 'rows.db'}")
    frozen = FrozenLog(log, {topic: log.bounds(topic) for topic in TOPICS_READ})
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    FeedbackRow.metadata.create_all(database.engine)
    patient = SETTINGS.model_copy(update={"unmatched_after_s": 3600.0})
    member = Member(database, frozen, patient, LONG_WINDOWS, now=lambda: tomorrow)
    while member.read_once(timeout_s=0):
        pass
    while member.close_once():
        pass
    with database.reading() as session:
        rows = list(session.scalars(select(FeedbackRow)))
        digests = fetch_experience_digests(session)
        experiences = [
            fetch_experience(session, tenant=tenant, experience_id=one) for tenant, one in digests
        ]
    database.close()
    rows.sort(key=lambda row: (row.target_id, row.appended_at, row.partition, row.log_offset))
    events = [decode(FeedbackReceived, row.document or b"") for row in rows]
    return Outcome(
        digests=digests,
        rewards={one.experience_id: one.reward for one in experiences if one is not None},
        states={row.feedback_id: row.state for row in rows},
        order=[row.feedback_id for row in rows],
        said_at={event.feedback_id: event.at for event in events},
        received_at={event.feedback_id: event.received_at for event in events},
    )


def outcome(folder: Path, ahead_s: Sequence[float]) -> Outcome:
    folder.mkdir()
    with running_cluster(PRODUCTION, folder, SETTINGS, num_workers=0, ahead_s=ahead_s) as cluster:
        send(cluster, ahead_s)
        return join(cluster.log, folder)


def test_clocks_an_hour_off_change_nothing_but_recorded_times(tmp_path: Path) -> None:
    try:
        true, skewed = (
            outcome(tmp_path / name, ahead_s)
            for name, ahead_s in (("true", TRUE), ("skewed", SKEWED))
        )
    except MissingServerError as error:
        missing_server(str(error))
    assert len(true.digests) == len(SERVED)
    assert len(set(true.rewards.values())) > 5
    assert set(true.states.values()) == {"joined", "superseded"}
    for name in ("digests", "rewards", "states", "order"):
        assert getattr(skewed, name) == getattr(true, name)
    _require_skewed(true, skewed)


def _require_skewed(true: Outcome, skewed: Outcome) -> None:
    producers = {
        body["feedback_id"]: producer
        for producer, path, body in traffic(TRUE)
        if path == "/v1/feedback"
    }
    began = min(true.received_at.values())
    for feedback_id, producer in producers.items():
        ahead = timedelta(seconds=SKEWED[producer])
        said, truly = skewed.said_at[feedback_id], true.said_at[feedback_id]
        assert said is not None
        assert truly is not None
        assert said - truly == ahead
        is_ahead = skewed.received_at[feedback_id] - began > timedelta(minutes=30)
        assert is_ahead == (producer == 0)
