"""A topic is followed and its lag measured, on both logs."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import insert

from tidemill.eventlog.base import EventLog
from tidemill.eventlog.following import Follower
from tidemill.lag import measure_lag
from tidemill.storage.database import Database
from tidemill.storage.tables import LogOffsetRow


@pytest.fixture
def topic(any_log: EventLog) -> str:
    name = f"test.{uuid4().hex[:12]}"
    any_log.create_topics((name,))
    return name


def append(log: EventLog, topic: str, *values: str) -> list[int]:
    sink = log.sink()
    # One partition for each key; both are met.
    places = [sink.append(topic, value, value.encode()).result(20) for value in values]
    sink.close()
    return [place.partition for place in places]


def test_a_follower_reads_each_record_once_and_in_time(any_log: EventLog, topic: str) -> None:
    values = [str(number) for number in range(20)]
    append(any_log, topic, *values)
    everything = Follower(any_log, topic, from_beginning=True)
    news = Follower(any_log, topic, from_beginning=False)
    assert [one.value.decode() for one in everything.poll()] == values
    assert news.poll() == []
    append(any_log, topic, "a", "b")
    for follower in (everything, news):
        assert [one.value for one in follower.poll()] == [b"a", b"b"]
        assert follower.poll() == []


def test_lag_is_told_in_records_and_seconds(
    any_log: EventLog, topic: str, database: Database
) -> None:
    partitions = append(any_log, topic, *(str(number) for number in range(9)))
    num_first = partitions.count(0)
    now = datetime.now(UTC) + timedelta(seconds=60)

    def lags() -> list[tuple[int | None, int | None, bool]]:
        found = measure_lag(database, any_log, (topic,), group="g", now=now)
        assert [one.num_records for one in found] == [num_first, 9 - num_first]
        return [
            (one.committed, one.lag_records, one.lag_s is not None and 50 < one.lag_s < 90)
            for one in found
        ]

    # Nobody reads it.
    assert lags() == [(None, None, False)] * 2
    with database.transaction() as session:
        rows = [(0, 1), (1, 9 - num_first)]
        session.execute(
            insert(LogOffsetRow),
            [
                {
                    "consumer_group": "g",
                    "topic": topic,
                    "partition": partition,
                    "first_offset": 0,
                    "next_offset": offset,
                    "num_records": offset,
                }
                for partition, offset in rows
            ],
        )
    assert lags() == [(1, num_first - 1, True), (9 - num_first, 0, False)]
