import json
from typing import Any

import pytest

from tests.memory_log import MemoryLog
from tidemill.contracts.events import FEEDBACK, INTERACTIONS
from tidemill.eventlog.base import Bounds, Record
from tidemill.ledger import Ledger, LogCount, _count, build_ledger
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
        "dropped": {},
        "replayed": {},
        "revisions": {},
        "acknowledged": {FEEDBACK: 5},
        "num_without_experience": 0,
        "num_without_interaction": 0,
        "num_without_letter": 0,
        "num_baseless_revisions": 0,
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
        (LogCount(3, 5), {"num_baseless_revisions": 4}, "4 revisions have no experience"),
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


class Shrinking(MemoryLog):
    """A log whose retention goes on while it is counted."""

    def __init__(self, steps: list[int]) -> None:
        super().__init__(num_partitions=1)
        self.steps = steps
        self.first = 0

    def bounds(self, topic: str) -> dict[int, Bounds]:
        return {
            number: Bounds(min(self.first, held.end), held.end)
            for number, held in super().bounds(topic).items()
        }

    def read(self, topic: str, partition: int, *, offset: int, max_records: int) -> list[Record]:
        self.first = self.steps.pop(0) if self.steps else self.first
        start = max(offset, self.first)
        return super().read(topic, partition, offset=start, max_records=min(max_records, 3))


@pytest.mark.parametrize("steps", [[0], [4], [0, 5], [2, 7, 9], [10], [3, 10]])
def test_retention_that_goes_on_meanwhile_hides_nothing(steps: list[int]) -> None:
    log = Shrinking(list(steps))
    for _ in range(10):
        log.put_bytes(FEEDBACK, "k", b"v")
    (place,) = log.bounds(FEEDBACK)
    counted = _count(log, (FEEDBACK, place), Bounds(0, 10), Progress(0, 8, 8))
    assert counted == LogCount(8, 10)


def test_a_record_that_is_gone_without_retention_is_missed() -> None:
    log = MemoryLog(num_partitions=1)
    for _ in range(10):
        log.put_bytes(FEEDBACK, "k", b"v")
    del next(iter(log.partitions.values()))[0]
    counted = _count(log, (FEEDBACK, 0), Bounds(0, 10), Progress(0, 8, 8))
    assert counted == LogCount(7, 9)
