"""Tenants that use the same ids have nothing to do with each other, on both databases."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from ingest.comparison import Kept, compare_ends
from ingest.ledger_views import LedgerViews
from tests.factories import VERSION, make_feedback, make_interaction, make_step
from tests.ingest_rig import Rig, seconds
from tests.memory_log import MemoryLog
from tidemill.contracts.events import FEEDBACK, Event
from tidemill.contracts.ids import new_interaction_id, new_trajectory_id
from tidemill.ledger import take_ledger
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.evidence import Window, fetch_outcomes
from tidemill.storage.interaction_ends import fetch_interaction_ends
from tidemill.storage.learning import Uses, record_step
from tidemill.storage.revisions import fetch_due_revisions
from tidemill.storage.tables import ExperienceRevisionRow, metadata

TRAJECTORY = new_trajectory_id()
*INTERACTIONS, UNKNOWN = [new_interaction_id(TRAJECTORY) for _ in range(4)]
FEEDBACKS = ("yes", "solved", "early", "lost", "late")
TENANTS = ("acme", "globex")
CLOSING = """
[metrics.accepted]
type = "bool"
window_s = 60

[metrics.stars]
type = "float"
range = [1, 5]
window_s = 60
closes = true
optional = true
"""


def story(tenant: str) -> list[tuple[float, Event]]:
    """Return what one tenant sends; the ids are those of the other, nothing else is."""
    is_acme = tenant == "acme"
    first, second, silent = (
        make_interaction(interaction_id=one, turn=turn, tenant=tenant, completion_ids=ids)
        for turn, (one, ids) in enumerate(
            zip(
                INTERACTIONS, [(7, 8), (9,), (5,)] if is_acme else [(1, 2), (3,), (4,)], strict=True
            )
        )
    )
    yes = make_feedback(first, feedback_id="yes", value=is_acme)
    lost = make_interaction(interaction_id=UNKNOWN, tenant=tenant)
    solved = {"interaction_id": None, "metric": "solved", "value": not is_acme}
    return [
        (0, first),
        (1, yes),
        (2, yes),
        (3, yes.model_copy(update={"value": not is_acme, "body_digest": "1" * 64})),
        (4, make_feedback(first, feedback_id="solved", **solved)),
        (5, make_feedback(second, feedback_id="early", value=not is_acme)),
        (6, make_feedback(lost, feedback_id="lost")),
        (7, second),
        (8, second.model_copy(update={"turn": 9})),
        (9, silent),
        (9, silent),
        (200, make_feedback(first, feedback_id="late", value=not is_acme)),
    ]


def log_of(*tenants: str) -> MemoryLog:
    """Return a log with the stories of some tenants; at each moment the first of them is first."""
    log = MemoryLog()
    told = [(at, event) for tenant in tenants for at, event in story(tenant)]
    for at, event in sorted(told, key=lambda one: one[0]):
        log.put(event, seconds(at))
    return log


def live_through(database: Database, log: MemoryLog, *, step: int = 3) -> Rig:
    """Read as the log grows, and close all the time."""
    settings = Rig(database, log).settings.model_copy(update={"poll_records": step})
    rig = Rig(database, log, settings=settings)
    moment = 0.0
    while rig.worker.read_once(timeout_s=0):
        moment += 4
        rig.close_at(seconds(moment))
    rig.close_at(seconds(10_000))
    return rig


def seen_by(database: Database, tenant: str) -> dict[str, Any]:
    """Return all that a tenant may read, and what was learned from it."""
    views = LedgerViews(database)
    found: dict[str, Any] = {one: views.interaction(tenant, one) for one in INTERACTIONS}
    found |= {one: views.feedback(tenant, one) for one in FEEDBACKS}
    found["states"] = views.states(tenant)
    row = ExperienceRevisionRow
    revisions = select(row.experience_id, row.feedback_id, row.reward).where(row.tenant == tenant)
    with database.reading() as session:
        found["revisions"] = [tuple(one) for one in session.execute(revisions)]
        window = Window(model="tide", tenant=tenant, version=VERSION)
        found["evidence"] = fetch_outcomes(session, window)
    return found


@pytest.mark.parametrize("order", [TENANTS, TENANTS[::-1]])
def test_each_tenant_has_what_it_would_have_alone(
    any_database: Database, tmp_path: Path, order: tuple[str, str]
) -> None:
    log = log_of(*order)
    live_through(any_database, log)
    for tenant in TENANTS:
        alone = Database(f"sqlite:///{tmp_path / tenant}.db")
        metadata.create_all(alone.engine)
        live_through(alone, log_of(tenant))
        found = seen_by(any_database, tenant)
        assert found == seen_by(alone, tenant)
        ends = [found[one]["state"] for one in INTERACTIONS]
        assert ends == ["rewarded", "rewarded", "excluded"]
        states = [found[one]["state"] for one in FEEDBACKS]
        assert states == ["joined", "joined", "joined", "dead_lettered", "late"]
        assert [one[:2] for one in found["revisions"]] == [(INTERACTIONS[0], "late")]
        assert len(found["evidence"]) == 3
        alone.close()
    taken = take_ledger(any_database, log)
    assert taken.problems == []


@pytest.mark.parametrize("order", [TENANTS, TENANTS[::-1]])
def test_a_replay_gives_both_the_same_again(
    any_database: Database, tmp_path: Path, order: tuple[str, str]
) -> None:
    log = log_of(*order)
    live_through(any_database, log)
    fresh = Database(f"sqlite:///{tmp_path / 'fresh'}.db")
    metadata.create_all(fresh.engine)
    again = Rig(fresh, log)
    again.read(only=FEEDBACK)
    again.run_to(seconds(10_000))
    with any_database.reading() as live, fresh.reading() as session:
        sides = fetch_interaction_ends(live), fetch_interaction_ends(session)
    kept = {number: Kept(since=None, until=1000) for number in range(log.num_partitions)}
    compared = compare_ends(*sides, kept)
    assert (compared.differences, compared.num_compared) == ([], 6)
    assert compared.digest == compared.live_digest
    fresh.close()


def test_an_answer_that_closes_ends_the_interaction_of_its_tenant_alone(
    any_database: Database,
) -> None:
    rig = Rig(any_database, metrics=parse_metrics(CLOSING))
    served = [make_interaction(interaction_id=INTERACTIONS[0], tenant=one) for one in TENANTS]
    for one in served:
        rig.log.put(one, seconds(0))
        rig.log.put(make_feedback(one), seconds(1))
    rig.log.put(make_feedback(served[1], metric="stars", value=3.0), seconds(2))
    rig.read()
    assert [rig.interaction(INTERACTIONS[0], one).state for one in TENANTS] == ["open", "rewarded"]
    assert rig.experience(INTERACTIONS[0], "acme") is None


def test_what_one_learner_used_is_no_use_of_the_others(any_database: Database) -> None:
    rig = live_through(any_database, log_of(*TENANTS))
    with rig.database.transaction() as session:
        record_step(
            session, make_step(learner="tide/globex"), Uses("globex", tuple(INTERACTIONS[:2]), 0, 1)
        )
    with rig.database.reading() as session:
        due = {
            tenant: [
                one.reward for one in fetch_due_revisions(session, model="tide", tenant=tenant)
            ]
            for tenant in TENANTS
        }
    assert due["acme"] == []
    assert len(due["globex"]) == 1
    assert take_ledger(rig.database, rig.log).problems == []
