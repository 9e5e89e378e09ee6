"""A client that sends everything three times, across midnight and restarts, stores it once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, select

from examples.servers.starting import MissingServerError, is_within
from tests.chaos.cluster import Cluster, running_cluster
from tests.chaos.run import SETTINGS
from tests.chaos.senders import Book
from tests.chaos.stacks import PRODUCTION
from tests.chaos.verdict import find_problems, read_log
from tests.factories import VERSION, make_interaction
from tests.lossy_proxy import lossy_proxy
from tests.servers import missing_server
from tidemill.client import Feedback, FeedbackClient, Interaction, Options
from tidemill.contracts.codec import decode
from tidemill.contracts.events import FeedbackReceived
from tidemill.storage.tables import DeadLetterRow, FeedbackRow, InteractionRow

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

TIMES = 3
NUM_INTERACTIONS, NUM_FEEDBACK = 20, 360
KILLS = {40: "api-1", 80: "worker-1", 120: "api-2", 220: "worker-2", 280: "api-1", 340: "api-2"}
"""After so many feedbacks, who is killed and started again."""
OPTIONS = Options(
    attempts=1_000,
    backoff_first_s=0.01,
    backoff_max_s=0.05,
    retry_after_max_s=0.2,
    send_after_items=20,
    max_batch_items=50,
)


def send_everything(client: FeedbackClient, cluster: Cluster, book: Book) -> None:
    """Send one by one, in batches and by the queue, while processes are killed."""
    served = [make_interaction().interaction_id for _ in range(NUM_INTERACTIONS)]
    for one in served:
        client.send_interaction(
            Interaction(
                interaction_id=one,
                policy_version=VERSION,
                content={"messages": [], "completion": "lights are on"},
                sampling={"temperature": 1.0, "max_tokens": 8},
            )
        )
    for number in range(NUM_FEEDBACK):
        feedback = Feedback(
            feedback_id=f"f-{number}",
            interaction_id=served[number % NUM_INTERACTIONS],
            metric="accepted",
            value=number % 3 == 0,
            rater=f"rater-{number % 7}",
            at=datetime.now(UTC),
        )
        book.note_sent([json.loads(feedback.encoded)])
        if number % 3 == 0:
            client.send(feedback)
        elif number % 3 == 1:
            client.send_batch([feedback])
        else:
            client.queue(feedback)
        if number in KILLS:
            cluster.fleet.kill(KILLS[number])
            cluster.fleet.tend()
    assert client.flush(60)
    book.note_stored(list(book.bodies), num_accepted=len(book.bodies))


def is_all_read(cluster: Cluster) -> bool:
    cluster.fleet.tend()
    return cluster.count_read() == cluster.count_in_log() and cluster.is_at_rest()


def test_everything_sent_three_times_is_stored_once(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    # Of two deliveries one comes on the evening before, the next in the night after.
    ahead_s = [(midnight - now + timedelta(hours=hours)).total_seconds() for hours in (-1, 1)]
    book = Book()
    try:
        with running_cluster(
            PRODUCTION, tmp_path, SETTINGS, num_workers=2, ahead_s=ahead_s
        ) as cluster:
            with (
                lossy_proxy(cluster.fleet.urls, times=TIMES) as proxy,
                FeedbackClient(proxy.url, cluster.create_key(), options=OPTIONS) as client,
            ):
                send_everything(client, cluster, book)
            assert proxy.num_delivered == TIMES * proxy.num_answered > TIMES * NUM_FEEDBACK / 3
            assert is_within(120, lambda: is_all_read(cluster))
            assert not any(cluster.fleet.stop().values())
            _require_stored_once(cluster, book, midnight)
    except MissingServerError as error:
        missing_server(str(error))


def _require_stored_once(cluster: Cluster, book: Book, midnight: datetime) -> None:
    assert find_problems(cluster.database, read_log(cluster.log), book) == []
    assert cluster.fleet.endings == []
    with cluster.database.reading() as session:
        rows = list(session.scalars(select(FeedbackRow)))
        letters = [row.reason for row in session.scalars(select(DeadLetterRow))]
        num_interactions = session.scalar(select(func.count()).select_from(InteractionRow))
    assert {row.feedback_id for row in rows} == {f"f-{n}" for n in range(NUM_FEEDBACK)}
    assert num_interactions == NUM_INTERACTIONS
    # A repeat that another clock had changed would be in conflict with the first.
    assert letters == []
    received = [decode(FeedbackReceived, row.document or b"").received_at for row in rows]
    assert any(at < midnight for at in received)
    assert any(at > midnight for at in received)
