"""A Kafka broker that is killed and comes back: bounded waits, nothing lost, nothing twice."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.servers import KafkaBroker, new_kafka_broker
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import EventSource
from tidemill.eventlog.kafka import KafkaLog
from tidemill.settings import KafkaLogSettings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "restart"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker that this test may kill."""
    broker = new_kafka_broker(tmp_path / "kafka")
    broker.start()
    yield broker
    broker.kill()


class Load(threading.Thread):
    """Appends one record after the other and keeps what was acknowledged."""

    def __init__(self, log: KafkaLog) -> None:
        super().__init__(daemon=True)
        self.sink = log.sink()
        self.acknowledged: list[bytes] = []
        self.longest_wait_s = 0.0
        self.refused = 0
        self.stop = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            value = str(number).encode()
            number += 1
            began = time.monotonic()
            try:
                self.sink.append(TOPIC, f"k{number % 5}", value).result()
            except EventLogUnavailableError:
                self.refused += 1
            else:
                self.acknowledged.append(value)
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began)


def wait_for_more(load: Load, count: int) -> None:
    target = len(load.acknowledged) + count
    deadline = time.monotonic() + 40
    while len(load.acknowledged) < target:
        assert time.monotonic() < deadline, "appending did not go on"
        time.sleep(0.01)


@pytest.fixture
def log(broker: KafkaBroker) -> Iterator[KafkaLog]:
    """Closed in any case: the threads of a client that is left would run into later tests."""
    settings = KafkaLogSettings(
        bootstrap_servers=broker.bootstrap, num_partitions=2, append_timeout_s=2.0
    )
    log = KafkaLog(settings)
    log.create_topics((TOPIC,))
    yield log
    log.close()


@pytest.fixture
def source(log: KafkaLog) -> Iterator[EventSource]:
    source = log.source((TOPIC,), group="g", positions=lambda _: None)
    yield source
    source.close()


@pytest.fixture
def load(log: KafkaLog) -> Iterator[Load]:
    load = Load(log)
    yield load
    load.stop.set()
    load.join()
    load.sink.close()


def read_all(log: KafkaLog) -> Counter[bytes]:
    """Return what the topic holds, once the log's own client has found the broker again."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return Counter(
                record.value
                for partition, bounds in log.bounds(TOPIC).items()
                for record in log.read(TOPIC, partition, offset=0, max_records=bounds.end)
            )
        except EventLogUnavailableError:
            assert time.monotonic() < deadline, "the log does not find the broker again"
            time.sleep(0.05)


def test_a_killed_broker_costs_bounded_waits_and_no_acknowledged_record(
    broker: KafkaBroker, log: KafkaLog, source: EventSource, load: Load
) -> None:
    load.start()
    wait_for_more(load, 100)
    polled = source.poll(max_records=10_000, timeout_s=5)
    broker.kill()
    began = time.monotonic()
    # Nothing, or said to be away: which, depends on what the client noticed by then.
    with suppress(EventLogUnavailableError):
        source.poll(max_records=10, timeout_s=0.3)
    assert time.monotonic() - began < 2
    while load.refused == 0:
        time.sleep(0.01)
    broker.start()
    wait_for_more(load, 100)
    load.stop.set()
    load.join()
    assert load.refused >= 1
    assert load.longest_wait_s < 3.0
    stored = read_all(log)
    assert [value for value in load.acknowledged if stored[value] != 1] == []
    assert max(stored.values()) == 1
    deadline = time.monotonic() + 30
    while len(polled) < sum(stored.values()) and time.monotonic() < deadline:
        with suppress(EventLogUnavailableError):
            polled.extend(source.poll(max_records=10_000, timeout_s=0.5))
    assert Counter(record.value for record in polled) == stored


def test_a_broker_that_is_not_there_is_said_when_it_is_needed() -> None:
    log = KafkaLog(KafkaLogSettings(bootstrap_servers="127.0.0.1:1", connect_timeout_s=0.3))
    before = set(threading.enumerate())
    for attempt in (
        lambda: log.create_topics(("t",)),
        log.sink,
        lambda: log.bounds("t"),
        lambda: log.source(("t",), group="g", positions=lambda _: None),
    ):
        with pytest.raises(EventLogUnavailableError, match="Kafka"):
            attempt()
    log.close()
    # What a client began and could not finish is ended.
    assert set(threading.enumerate()) <= before
