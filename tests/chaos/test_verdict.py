"""The set check finds whatever is missing, doubled, torn or not at rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from tests.chaos.senders import Book
from tests.chaos.verdict import find_problems, find_replay_problems, read_log
from tests.factories import make_feedback, make_interaction
from tests.ingest_rig import Rig, seconds
from tidemill.contracts.events import FEEDBACK
from tidemill.storage.database import Database, Session
from tidemill.storage.tables import DeadLetterRow, DuplicateDeliveryRow, FeedbackRow, InteractionRow
from tidemill.storage.tables.base import Row


class Checked:
    """A rig with one of everything, all of it known to a sender."""

    def __init__(self, database: Database) -> None:
        self.rig = Rig(database)
        self.book = Book()
        served = make_interaction()
        feedback = make_feedback(served, feedback_id="f1")
        for event in (served, feedback, feedback):
            self.rig.log.put(event)
        self.rig.log.put_bytes(FEEDBACK, served.key, b"junk")
        self.rig.run_to(seconds(3600))
        bodies: list[dict[str, Any]] = [
            {
                "interaction_id": served.interaction_id,
                "turn": 0,
                "content": {"completion": served.content.completion},
                "completion_ids": list(served.completion_ids),
                "behaviour_logprobs": list(served.behaviour_logprobs or ()),
            },
            {
                "feedback_id": "f1",
                "interaction_id": served.interaction_id,
                "metric": "accepted",
                "value": True,
            },
        ]
        self.book.note_sent(bodies)
        self.book.note_stored(["f1", served.interaction_id], num_accepted=2)

    def problems(self) -> list[str]:
        log = self.rig.log
        return find_problems(self.rig.database, read_log(log), self.book)


@pytest.fixture
def checked(database: Database) -> Checked:
    """All is well at first."""
    checked = Checked(database)
    assert checked.problems() == []
    return checked


def _copy_as_letter(session: Session) -> None:
    row = session.scalars(select(FeedbackRow)).one()
    letter = session.scalars(select(DeadLetterRow)).one()
    columns = {one.name: getattr(letter, one.name) for one in DeadLetterRow.__table__.columns}
    session.add(DeadLetterRow(**(columns | {"log_offset": row.log_offset})))


@pytest.mark.parametrize(
    ("tamper", "words"),
    [
        (lambda s: s.execute(delete(DuplicateDeliveryRow)), "stand nowhere"),
        (lambda s: s.execute(delete(FeedbackRow)), "feedback: acknowledged and lost"),
        (lambda s: s.execute(delete(InteractionRow)), "interaction: acknowledged and lost"),
        (_copy_as_letter, "stand in two places"),
        (lambda s: s.execute(update(FeedbackRow).values(log_offset=77)), "does not hold"),
        (lambda s: s.execute(update(DeadLetterRow).values(detail="")), "with a reason"),
        (lambda s: s.execute(update(FeedbackRow).values(value=False)), "another content"),
        (lambda s: s.execute(update(FeedbackRow).values(state="pending")), "no final state"),
        (lambda s: s.execute(update(InteractionRow).values(state="open")), "no final state"),
    ],
)
def test_what_is_wrong_is_found(
    checked: Checked, tamper: Callable[[Session], object], words: str
) -> None:
    with checked.rig.database.transaction() as session:
        tamper(session)
    assert any(words in problem for problem in checked.problems())


@pytest.mark.parametrize("table", [FeedbackRow, DuplicateDeliveryRow, DeadLetterRow])
def test_what_a_replay_lacks_is_found(checked: Checked, tmp_path: Path, table: type[Row]) -> None:
    live = checked.rig.database
    again = Rig(Database(f"sqlite:///{tmp_path / 'again.db'}"), log=checked.rig.log)
    Row.metadata.create_all(again.database.engine)
    again.run_to(seconds(3600))
    assert find_replay_problems(live, again.database) == []
    with again.database.transaction() as session:
        session.execute(delete(table))
    assert any("the replay None" in one for one in find_replay_problems(live, again.database))
    again.database.close()


def test_a_row_for_what_cannot_be_read_is_found(checked: Checked) -> None:
    with checked.rig.database.transaction() as session:
        letter = session.scalars(select(DeadLetterRow)).one()
        place = {"partition": letter.partition, "log_offset": letter.log_offset}
        session.delete(letter)
        session.flush()
        session.execute(update(FeedbackRow).values(**place))
    assert any("cannot be read" in problem for problem in checked.problems())


def test_an_acknowledged_id_that_the_log_never_had_is_found(checked: Checked) -> None:
    checked.book.note_sent([{"feedback_id": "f2", "interaction_id": "a.b"}])
    assert checked.problems() == []
    checked.book.note_stored(["f2"], num_accepted=1)
    assert any("acknowledged and lost" in problem for problem in checked.problems())
