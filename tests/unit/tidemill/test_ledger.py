import json
from typing import Any

import pytest

from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.ledger import Ledger, LogCount, build_ledger
from tidemill.storage.ledger import Progress, RowsSide

PLACE = (FEEDBACK, 0)


COUNTED = LogCount(3, 5)


def ledger(count: LogCount | None = COUNTED, **over: Any) -> Ledger:
    defaults: dict[str, Any] = {
        "progress": {PLACE: Progress(0, 3, 3)},
        "records": {PLACE: 3},
        "interactions": {"open": 1},
        "excluded": {"silent": 2},
        "feedback": {"joined": 3},
        "num_duplicates": 0,
        "dead_letters": {},
        "letters": {},
        "replayed": {},
        "acknowledged": {FEEDBACK: 5},
        "num_without_experience": 0,
        "num_without_interaction": 0,
        "num_without_letter": 0,
    }
    counts = {} if count is None else {PLACE: count}
    return build_ledger(RowsSide(**(defaults | over)), counts)


def test_equal_sides_balance() -> None:
    taken = ledger()
    assert taken.is_balanced
    assert taken.records[FEEDBACK] == {
        "in_log": 5,
        "processed": 3,
        "waiting": 2,
        "rows": 3,
        "acknowledged": 5,
    }
    assert taken.feedback["late"] == 0
    assert json.loads(json.dumps(taken.to_json()))["balanced"] is True


@pytest.mark.parametrize(
    ("count", "change", "words"),
    [
        (LogCount(2, 4), {"acknowledged": {}}, "log holds 2 records"),
        (LogCount(3, 5), {"records": {PLACE: 2}}, "rows stand for 2"),
        (LogCount(3, 5), {"records": {}}, "rows stand for 0"),
        (LogCount(3, 5), {"progress": {}}, "processed 0"),
        (None, {"acknowledged": {}}, "log holds 0"),
        (LogCount(3, 5), {"records": {PLACE: 3, (INTERACTIONS, 1): 1}}, "rows stand for 1"),
        (LogCount(3, 4), {}, "5 records were acknowledged, the log holds 4"),
        (
            LogCount(3, 5),
            {"replayed": {FEEDBACK: 1}},
            "5 records were acknowledged, the log holds 4",
        ),
        (LogCount(3, 5), {"letters": {"?": 2}}, "2 dead letters are in the unknown state '?'"),
        (LogCount(3, 5), {"num_without_experience": 1}, "1 closed interactions have no exp"),
        (LogCount(3, 5), {"num_without_interaction": 2}, "2 live experiences"),
        (LogCount(3, 5), {"num_without_letter": 3}, "3 dead-lettered feedbacks"),
        (LogCount(3, 5), {"feedback": {"lost": 1}}, "1 feedbacks are in the unknown state 'lost'"),
        (LogCount(3, 5), {"interactions": {"?": 4}}, "4 interactions are in the unknown state"),
    ],
)
def test_every_difference_is_said(
    count: LogCount | None, change: dict[str, Any], words: str
) -> None:
    taken = ledger(count, **change)
    assert not taken.is_balanced
    assert any(words in problem for problem in taken.problems)
