"""Without consent nobody learns: from the request to the experience, whatever else is said."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ingest.member import Member
from ingest.settings import IngestSettings
from tests.ingest_client import SERVED, Client
from tidemill.eventlog.opening import open_log
from tidemill.rewards.metrics_file import load_metrics
from tidemill.storage.experiences import fetch_experience_digests
from tidemill.storage.tables import ExperienceRevisionRow, InteractionRow

LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.fixture(params=[False, True])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings(consent_default=request.param))
    yield client
    client.close()


def serve(client: Client, **said: Any) -> str:
    left_out = ("interaction_id", "consent")
    body = {key: value for key, value in SERVED.items() if key not in left_out}
    answer = client.post(body | said, "/v1/interactions")
    assert answer.status_code == 202
    interaction_id: str = answer.json()["interaction_id"]
    accept(client, interaction_id)
    return interaction_id


def accept(client: Client, interaction_id: str, *, value: bool = True) -> None:
    body = {"interaction_id": interaction_id, "metric": "accepted", "value": value}
    assert client.post(body).status_code == 202


def work(client: Client) -> None:
    """Read everything, then close as if a day had passed."""
    log = open_log(client.shared)
    settings = IngestSettings(close_grace_s=0)
    metrics = load_metrics(client.shared.metrics)
    member = Member(client.database, log, settings, metrics, now=lambda: LATER)
    while member.read_once(timeout_s=0.3):
        pass
    member.close_once()
    member.close()
    log.close()


def test_only_what_was_agreed_to_becomes_an_experience(client: Client) -> None:
    agreed = serve(client, consent=True)
    refused = serve(client, consent=False)
    unsaid = serve(client)
    work(client)
    # What is said afterwards does not bring it in by the back door.
    accept(client, refused, value=False)
    work(client)
    expected = {agreed, unsaid} if client.settings.consent_default else {agreed}
    with client.database.reading() as session:
        assert {one for _, one in fetch_experience_digests(session)} == expected
        row = session.get_one(InteractionRow, (refused, "default"))
        assert (row.state, row.excluded_reason) == ("excluded", "no_consent")
        assert session.scalars(select(ExperienceRevisionRow)).all() == []
