"""Two workers at one partition of PostgreSQL, as may be while partitions move between them."""

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import func, select, text

from ingest.closer import Closer
from ingest.intake import TOPICS_READ, Intake
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import METRICS, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.events import Event
from tidemill.eventlog.base import Record
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database, Session
from tidemill.storage.interactions import fetch_open
from tidemill.storage.judgements import fetch_judgements
from tidemill.storage.tables import FeedbackRow, InteractionRow

pytestmark = pytest.mark.integration

WAITS_S = 10.0
INTAKE = Intake(group="ingest", metrics=parse_metrics(METRICS), unmatched_after_s=60)


def store(session: Session, *records: Record) -> None:
    """Take the first records of their partitions into rows."""
    INTAKE.store(session, records, {record.topic_partition: None for record in records})


def meanwhile(database: Database, second: Callable[[], object]) -> threading.Thread:
    """Begin what a second worker does; return when it has ended or waits for the first one."""
    thread = threading.Thread(target=second)
    thread.start()
    waiting = select(func.count()).select_from(text("pg_locks")).where(text("NOT granted"))
    deadline = time.monotonic() + WAITS_S
    while thread.is_alive() and time.monotonic() < deadline:
        with database.reading() as session:
            if session.scalar(waiting):
                break
    return thread


def closer_on(database: Database, log: MemoryLog, metrics: MetricsFile) -> Closer:
    return Closer(
        database=database,
        log=log,
        group=INTAKE.group,
        metrics=metrics,
        verifiers={},
        grace_s=0,
        unmatched_after_s=INTAKE.unmatched_after_s,
        limit=10,
        judge_wait_s=60,
        now=lambda: seconds(62),
    )


def states(database: Database) -> list[str]:
    with database.reading() as session:
        return list(session.scalars(select(FeedbackRow.state)))


@pytest.mark.parametrize("interaction_first", [True, False])
def test_each_with_one_half_of_a_pair_join_it(
    postgres_database: Database, interaction_first: bool
) -> None:
    served = make_interaction()
    pair: list[Event] = [served, make_feedback(served)]
    log = MemoryLog()
    first, second = map(log.put, pair if interaction_first else reversed(pair))

    def other_worker() -> None:
        with postgres_database.transaction() as session:
            store(session, second)

    with postgres_database.transaction() as session:
        store(session, first)
        thread = meanwhile(postgres_database, other_worker)
    thread.join()
    assert states(postgres_database) == ["joined"]


def test_feedback_that_comes_again_while_another_worker_lets_it_expire(
    postgres_database: Database,
) -> None:
    log = MemoryLog()
    log.create_topics(TOPICS_READ)
    feedback = make_feedback()
    first = log.put(feedback, seconds(0))
    with postgres_database.transaction() as session:
        store(session, first)
    again = log.put(feedback, seconds(61))
    closer = closer_on(postgres_database, log, INTAKE.metrics)
    expected = {again.topic_partition: first.offset + 1}
    with postgres_database.transaction() as session:
        INTAKE.store(session, [again], expected)
        thread = meanwhile(postgres_database, lambda: closer.expire_due({again.partition}))
    thread.join()
    assert states(postgres_database) == ["pending"]


def test_an_answer_that_closes_waits_for_the_judge_that_another_worker_has_just_asked(
    postgres_database: Database,
) -> None:
    metrics = parse_metrics(
        METRICS + '[judges.helpful]\nmodel = "m"\n[judges.helpful.items.kind]\nquestion = "Kind?"'
    )
    log, served = MemoryLog(), make_interaction()
    served_key = (served.tenant, served.interaction_id)
    with postgres_database.transaction() as session:
        store(session, log.put(served, seconds(0)))
        store(session, log.put(make_feedback(served), seconds(1)))
    closer = closer_on(postgres_database, log, metrics)
    with postgres_database.transaction() as session:
        (row,) = fetch_open(session, {served_key}, is_judged=True)
        # As the first worker closes it: the judge is wanted, the interaction stays open.
        closer._close(session, [row])
        thread = meanwhile(postgres_database, lambda: closer.close_ended({served_key}))
    thread.join()
    with postgres_database.reading() as session:
        closed = session.get_one(InteractionRow, (served.interaction_id, served.tenant))
        assert (closed.state, closed.excluded_reason) == ("open", None)
        assert len(fetch_judgements(session, [served.interaction_id])) == 1
