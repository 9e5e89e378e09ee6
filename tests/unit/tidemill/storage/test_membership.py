"""Which index SQLite searches: without statistics, the same for any number of rows."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event

from tests.factories import NOW
from tidemill.errors import FencedError
from tidemill.storage.database import Database, Session
from tidemill.storage.feedback import fetch_by_target, fetch_known_digests
from tidemill.storage.interactions import (
    ClosedAs,
    fetch_known_documents,
    fetch_open,
    fetch_served_at,
    mark_closed,
)
from tidemill.storage.repeats import fetch_dead_lettered

KEYS = [("acme", "a"), ("globex", "b")]
INTERACTION = "(interaction_id=? AND tenant=?)"


@pytest.fixture
def searches(database: Database) -> Iterator[list[str]]:
    """What the statements of a test search by."""
    found: list[str] = []

    def explain(connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("SELECT", "UPDATE")):
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            found.extend(row[-1] for row in cursor.fetchall() if "INDEX" in row[-1])

    event.listen(database.engine, "before_cursor_execute", explain)
    yield found
    event.remove(database.engine, "before_cursor_execute", explain)


@pytest.mark.parametrize(
    ("ask", "columns"),
    [
        (lambda s: fetch_known_documents(s, KEYS), [INTERACTION]),
        (lambda s: fetch_open(s, KEYS), [INTERACTION]),
        (lambda s: fetch_open(s, KEYS, is_judged=True), [INTERACTION, "(interaction_id=?)"]),
        (
            lambda s: fetch_served_at(s, interactions=KEYS, trajectories=KEYS),
            [INTERACTION, "(trajectory_id=? AND tenant=?)"],
        ),
        (lambda s: fetch_known_digests(s, KEYS), ["(tenant=? AND feedback_id=?)"]),
        (lambda s: fetch_dead_lettered(s, KEYS), ["(tenant=? AND feedback_id=?)"]),
        (lambda s: fetch_by_target(s, KEYS), ["(tenant=? AND target_id=?)"]),
    ],
)
def test_pairs_are_searched_by_both_columns(
    database: Database, searches: list[str], ask: Callable[[Session], object], columns: list[str]
) -> None:
    with database.transaction() as session:
        ask(session)
    assert columns_of(searches) == columns


def test_interactions_are_closed_by_both_columns(database: Database, searches: list[str]) -> None:
    ends = [ClosedAs(one, "rewarded", None) for one in KEYS]
    with pytest.raises(FencedError), database.transaction() as session:
        mark_closed(session, ends, closed_at=NOW)
    assert columns_of(searches) == [INTERACTION]


def columns_of(searches: list[str]) -> list[str]:
    return [one[one.index("(") :] for one in searches if "VIRTUAL" not in one]
