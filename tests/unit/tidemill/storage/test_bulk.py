from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import select

from tests.factories import NOW
from tidemill.errors import StorageError
from tidemill.storage.bulk import insert_rows
from tidemill.storage.database import Database
from tidemill.storage.membership import is_any, is_any_pair
from tidemill.storage.tables import DuplicateDeliveryRow, FeedbackRow


def feedback(number: int, **over: Any) -> dict[str, Any]:
    row = {
        "tenant": "t",
        "feedback_id": f"f{number}",
        "trajectory_id": "a",
        "interaction_id": None,
        "target_id": "a",
        "metric": "accepted",
        "value": True,
        "source": "end_user",
        "rater": None,
        "body_digest": "d",
        "document": b"\x00\xff{}",
        "state": "joined",
        "partition": 0,
        "log_offset": number,
        "appended_at": NOW,
        "expires_at": NOW,
    }
    return row | over


def fetch(database: Database) -> list[FeedbackRow]:
    with database.reading() as session:
        return sorted(session.query(FeedbackRow), key=lambda row: row.log_offset)


def test_every_kind_of_value_comes_back_as_it_was(any_database: Database) -> None:
    values: list[Any] = [True, 0.1, {"comment": 'a "b", {c} \\ é\n'}, {"kept_fraction": None}]
    rows = [feedback(number, value=value) for number, value in enumerate(values)]
    rows += [feedback(9, rater="r{,}", document=None, log_offset=2**40)]
    with any_database.transaction() as session:
        insert_rows(session, FeedbackRow, rows)
        insert_rows(session, FeedbackRow, [])
    found = fetch(any_database)
    assert [row.value for row in found] == [*values, True]
    assert [row.document for row in found] == [b"\x00\xff{}"] * 4 + [None]
    assert (found[-1].rater, found[-1].log_offset) == ("r{,}", 2**40)
    assert all(row.appended_at == NOW and isinstance(row.appended_at, datetime) for row in found)


def test_one_row_too_many_leaves_none(any_database: Database) -> None:
    with pytest.raises(StorageError), any_database.transaction() as session:
        insert_rows(session, FeedbackRow, [feedback(1), feedback(1)])
    assert fetch(any_database) == []


def test_membership_is_that_of_texts(any_database: Database) -> None:
    hostile = ["a'b", 'a"b', "{x,y}", "%s", ""]
    with any_database.transaction() as session:
        rows = [
            {
                "topic": "t",
                "partition": 0,
                "log_offset": number,
                "tenant": None,
                "record_id": text,
                "appended_at": NOW,
            }
            for number, text in enumerate([*hostile, "other"])
        ]
        insert_rows(session, DuplicateDeliveryRow, rows)
    with any_database.reading() as session:
        wanted = is_any(DuplicateDeliveryRow.record_id, [*hostile, "unknown"])
        found = session.query(DuplicateDeliveryRow.record_id).filter(wanted).all()
        assert {text for (text,) in found} == set(hostile)
        nobody = is_any(DuplicateDeliveryRow.tenant, ["x"])
        assert session.query(DuplicateDeliveryRow).filter(nobody).all() == []
        nothing = is_any(DuplicateDeliveryRow.record_id, [])
        assert session.query(DuplicateDeliveryRow).filter(nothing).all() == []


def test_membership_of_pairs_takes_both_together(any_database: Database) -> None:
    hostile = ["a'b", 'a"b', "[x,y]", "%s", "\\", "\u00fc\U0001f30a"]
    stored = [(tenant, one) for tenant in ("a", "b", hostile[1]) for one in hostile]
    with any_database.transaction() as session:
        rows = [
            feedback(number) | {"tenant": tenant, "feedback_id": one}
            for number, (tenant, one) in enumerate(stored)
        ]
        insert_rows(session, FeedbackRow, rows)
    with any_database.reading() as session:
        row = FeedbackRow
        asked = {("a", hostile[0]), ("b", hostile[1]), (hostile[1], hostile[5]), ("c", "%s")}
        query = select(row.tenant, row.feedback_id).where(is_any_pair(row.tenant, row.feedback_id))
        for wanted in (asked, set(stored), set()):
            found = session.execute(query, {"pairs": wanted})
            assert {(one, other) for one, other in found} == wanted & set(stored)
