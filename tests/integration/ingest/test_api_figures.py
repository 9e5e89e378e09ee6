"""What Prometheus reads of the feedback API: the caller's own ledger, and the process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.settings import IngestSettings
from tests.ingest_client import GOOD, SERVED, Client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    client = Client(tmp_path, IngestSettings())
    yield client
    client.close()


def test_a_key_sees_the_ledger_of_its_tenant_alone(client: Client) -> None:
    assert client.post(SERVED, "/v1/interactions").status_code == 202
    assert client.post(GOOD, key=client.key("feedback:write", "other")).status_code == 202
    assert client.post(GOOD).status_code == 202
    client.work()
    answer = client.call("GET", "/metrics", key=client.keys["read"])
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert 'tidemill_ingest_ledger_interactions{tenant="default",state="open"} 1' in lines
    assert 'tidemill_ingest_ledger_feedback{tenant="default",state="joined"} 1' in lines
    assert 'tidemill_ingest_answered_total{status="accepted"} 3' in lines
    assert "other" not in answer.text
    theirs = client.call("GET", "/metrics", key=client.key("read", "other")).text
    assert 'tidemill_ingest_ledger_feedback{tenant="other",state="pending"} 1' in theirs
    assert "default" not in theirs


def test_without_the_scope_nothing_is_told(client: Client) -> None:
    assert client.call("GET", "/metrics", key="").status_code == 401
    assert client.call("GET", "/metrics", key=client.keys["feedback:write"]).status_code == 403
