"""States by hour and tenant, on both databases, and counted from an index alone."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from sqlalchemy import text

from tests.factories import NOW, make_feedback, make_interaction
from tests.ingest_rig import Rig
from tidemill.storage.database import Database
from tidemill.storage.ledger_groups import GroupBy, StateCount, fetch_state_counts


@pytest.fixture
def rig(any_database: Database) -> Rig:
    """Two tenants, three hours, a state of each kind."""
    rig = Rig(any_database)
    for tenant, hours in (("default", 0.99), ("default", 2), ("other", 2)):
        interaction = make_interaction(tenant=tenant)
        at = NOW + timedelta(hours=hours)
        rig.log.put(interaction, at)
        rig.log.put(make_feedback(interaction), at + timedelta(seconds=30))
    rig.log.put(make_feedback(metric="nothing"), NOW + timedelta(hours=2, minutes=1))
    rig.run_to(NOW + timedelta(hours=1.5))
    return rig


def fetch(rig: Rig, *by: GroupBy, **over: object) -> dict[tuple[object, ...], int]:
    with rig.database.reading() as session:
        counts = fetch_state_counts(session, by, **over)  # type: ignore[arg-type]
    name: Callable[[StateCount], tuple[object, ...]] = lambda one: (  # noqa: E731
        *(() if one.hour is None else ((one.hour - NOW) / timedelta(hours=1),)),
        *(() if one.tenant is None else (one.tenant,)),
        one.kind,
        one.state,
    )
    return {name(one): one.number for one in counts}


def test_by_hour_of_appending(rig: Rig) -> None:
    assert fetch(rig, GroupBy.HOUR) == {
        (0, "interactions", "rewarded"): 1,
        (0, "feedback", "joined"): 1,
        (2, "interactions", "open"): 2,
        (2, "feedback", "joined"): 2,
        (2, "dead_letters", "open"): 1,
    }


def test_by_tenant_and_by_both(rig: Rig) -> None:
    assert fetch(rig, GroupBy.TENANT) == {
        ("default", "interactions", "rewarded"): 1,
        ("default", "interactions", "open"): 1,
        ("default", "feedback", "joined"): 2,
        ("default", "dead_letters", "open"): 1,
        ("other", "interactions", "open"): 1,
        ("other", "feedback", "joined"): 1,
    }
    both = fetch(rig, GroupBy.TENANT, GroupBy.HOUR, tenant="other")
    assert both == {(2, "other", "interactions", "open"): 1, (2, "other", "feedback", "joined"): 1}


def test_without_groups_and_since_a_moment(rig: Rig) -> None:
    assert fetch(rig, since=NOW + timedelta(hours=1)) == {
        ("interactions", "open"): 2,
        ("feedback", "joined"): 2,
        ("dead_letters", "open"): 1,
    }


@pytest.mark.parametrize("table", ["interactions", "feedback"])
def test_documents_are_not_read(database: Database, table: str) -> None:
    query = f"EXPLAIN QUERY PLAN SELECT substr(appended_at, 1, 13), tenant, state, count(*) FROM {table} GROUP BY 1, 2, 3"  # noqa: S608, E501
    with database.reading() as session:
        plan = " ".join(row[3] for row in session.execute(text(query)))
    assert f"USING COVERING INDEX ix_{table}_hours" in plan
