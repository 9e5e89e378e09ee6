"""Three brokers, of which the leader is killed: nothing acknowledged is lost, nothing twice."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from tests.integration.eventlog.group_members import GroupMember, Stream, wait_until
from tests.kafka_cluster import KafkaCluster, running_cluster
from tests.stored_offsets import StoredOffsets
from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.base import Position
from tidemill.eventlog.kafka import KafkaLog
from tidemill.settings import KafkaLogSettings

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TOPIC = "leaders"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def log(cluster: KafkaCluster) -> Iterator[KafkaLog]:
    settings = KafkaLogSettings(
        bootstrap_servers=cluster.bootstrap,
        num_partitions=3,
        replication_factor=3,
        session_timeout_s=2.0,
    )
    log = KafkaLog(settings)
    log.create_topics((TOPIC,))
    yield log
    log.close()


def leader_of(log: KafkaLog, partition: int) -> int:
    [topic] = log._admin().describe_topics([TOPIC])
    [found] = [one for one in topic["partitions"] if one["partition_index"] == partition]
    leader: int = found["leader_id"]
    return leader


def wait_for_more(stream: Stream, count: int) -> None:
    before = len(stream.acknowledged)
    wait_until(lambda: len(stream.acknowledged) >= before + count, "appending goes on")


def stored_in(log: KafkaLog) -> Counter[bytes]:
    return Counter(
        record.value
        for partition, bounds in log.bounds(TOPIC).items()
        for record in log.read(TOPIC, partition, offset=0, max_records=bounds.end)
    )


def test_a_killed_leader_loses_nothing_that_was_acknowledged(
    cluster: KafkaCluster, log: KafkaLog
) -> None:
    rows = StoredOffsets()
    member = GroupMember(log, (TOPIC,), "g", rows).start()
    stream = Stream(log, TOPIC).start()
    wait_for_more(stream, 300)
    for partition in (0, 1):
        broker = cluster.brokers[leader_of(log, partition)]
        broker.kill()
        wait_for_more(stream, 300)
        broker.start()
        wait_for_more(stream, 300)
    stream.stop()
    stored = stored_in(log)
    assert [value for value in stream.acknowledged if stored[value] != 1] == []
    # What was refused may be there, once.
    assert set(stored.values()) == {1}
    assert len(stored) <= len(stream.acknowledged) + stream.num_refused
    wait_until(lambda: len(rows.values) >= len(stored), "the group has read everything")
    member.leave()
    assert Counter(rows.values) == stored


def test_one_copy_is_not_enough_to_acknowledge(cluster: KafkaCluster, log: KafkaLog) -> None:
    sink = log.sink()
    sink.append(TOPIC, "k", b"before").result(timeout=20)
    alive = leader_of(log, 0)
    others = [number for number in cluster.brokers if number != alive]
    for number in others:
        cluster.brokers[number].kill()
    refused: list[Future[Position]] = []
    began = time.monotonic()
    for number in range(5):
        refused.append(sink.append(TOPIC, str(number), b"refused"))
    for future in refused:
        with pytest.raises(EventLogUnavailableError):
            future.result(timeout=20)
    # log.append_timeout_s is 2 s.
    assert time.monotonic() - began < 4
    cluster.start(*others)
    wait_until(lambda: takes_records(log), "appending goes on")
    sink.close()


def takes_records(log: KafkaLog) -> bool:
    try:
        sink = log.sink()
    except EventLogUnavailableError:
        return False
    try:
        sink.append(TOPIC, "k", b"after").result(timeout=20)
    except EventLogUnavailableError:
        return False
    finally:
        sink.close()
    return True
