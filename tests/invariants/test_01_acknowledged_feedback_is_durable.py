"""Invariant 1: a 2xx for feedback means it is durable; it is never lost, whatever dies when."""

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from tests.factories import make_interaction
from tests.ingest_processes import ROUNDS, Installation, installation
from tidemill.contracts.events import FEEDBACK, FeedbackReceived
from tidemill.storage.tables import FeedbackRow

NUM_CLIENTS = 4
BATCH = 50
NUM_ITEMS = 2_000 * ROUNDS
TARGETS = [make_interaction().interaction_id for _ in range(40)]


@dataclass
class Client(threading.Thread):
    """Posts single feedbacks and batches, repeating what was not acknowledged."""

    url: str
    name_prefix: str
    num_items: int
    acknowledged: set[str] = field(default_factory=set)
    refused: list[Any] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Send every item until it is acknowledged."""
        rng = random.Random(self.name_prefix)
        to_send = [f"{self.name_prefix}-{number}" for number in range(self.num_items)]
        with httpx.Client(base_url=self.url, timeout=10) as http:
            while to_send and not self.stop.is_set():
                size = 1 if rng.random() < 0.5 else BATCH
                batch, rest = to_send[:size], to_send[size:]
                try:
                    stored = self._send(http, batch)
                except httpx.TransportError:
                    # Nothing is known of these: the same ids are sent again.
                    time.sleep(0.02)
                    continue
                self.acknowledged |= stored
                to_send = [one for one in batch if one not in stored] + rest

    def _send(self, http: httpx.Client, ids: list[str]) -> set[str]:
        bodies = [
            {
                "feedback_id": one,
                "interaction_id": TARGETS[hash(one) % len(TARGETS)],
                "metric": "accepted",
                "value": True,
            }
            for one in ids
        ]
        if len(bodies) == 1:
            answer = http.post("/v1/feedback", json=bodies[0])
            if answer.status_code in (200, 202):
                return {ids[0]}
            self.refused += [answer.text] if answer.status_code not in (429, 503) else []
            return set()
        answer = http.post("/v1/feedback:batch", json={"feedback": bodies})
        if answer.status_code != 207:
            self.refused += [answer.text] if answer.status_code not in (429, 503) else []
            return set()
        items = answer.json()["items"]
        self.refused += [item for item in items if item["status"] == "rejected"]
        return {item["feedback_id"] for item in items if item["status"] in _STORED}


_STORED = ("accepted", "duplicate")


@pytest.mark.slow
@pytest.mark.integration
def test_acknowledged_feedback_survives_kill_9_of_the_api(tmp_path: Path) -> None:
    rng = random.Random(1)
    with installation(tmp_path) as made:
        api = made.start_api()
        clients = [
            Client(made.url, f"c{number}", NUM_ITEMS // NUM_CLIENTS)
            for number in range(NUM_CLIENTS)
        ]
        for client in clients:
            client.start()
        for number in range(ROUNDS):
            # Each kill comes while the clients are in the middle of it.
            goal = NUM_ITEMS * (number + rng.uniform(0.2, 0.8)) / ROUNDS
            while sum(len(one.acknowledged) for one in clients) < goal:
                time.sleep(0.002)
            made.kill(api)
            api = made.start_api()
        for client in clients:
            client.join(120)
        assert made.stop(api) == 0
        acknowledged = set().union(*(client.acknowledged for client in clients))
        assert [client.refused for client in clients] == [[]] * NUM_CLIENTS
        assert len(acknowledged) == NUM_ITEMS
        in_log = _ids_in_log(made)
        assert acknowledged <= set(in_log)
        _read_all(made, num_records=len(in_log))
        with made.database.reading() as session:
            rows = set(session.scalars(select(FeedbackRow.feedback_id)))
        assert acknowledged <= rows


def _ids_in_log(made: Installation) -> list[str]:
    found: list[str] = []
    with made.open_log() as log:
        for partition, bounds in log.bounds(FEEDBACK).items():
            records = log.read(FEEDBACK, partition, offset=bounds.first, max_records=10**6)
            assert len(records) == bounds.end - bounds.first
            events = [FeedbackReceived.model_validate_json(one.value) for one in records]
            found += [event.feedback_id for event in events]
    return found


def _read_all(made: Installation, *, num_records: int) -> None:
    made.settings = made.settings.model_copy(update={"poll_records": 500})
    worker = made.start("worker")
    deadline = time.monotonic() + 120
    while made.num_processed() < num_records and time.monotonic() < deadline:
        assert worker.poll() is None
        time.sleep(0.1)
    assert made.num_processed() == num_records
    assert made.stop(worker) == 0
