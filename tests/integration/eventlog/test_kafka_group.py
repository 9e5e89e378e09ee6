"""A consumer group on Kafka whose members come, go and stand still: no loss, nothing twice."""

from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.integration.eventlog.group_members import GroupMember, Stream, wait_until
from tests.servers import KafkaBroker, new_kafka_broker
from tests.stored_offsets import StoredOffsets
from tidemill.eventlog.kafka import KafkaLog
from tidemill.settings import KafkaLogSettings

pytestmark = pytest.mark.integration

NUM_PARTITIONS = 6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that allows short sessions."""
    broker = new_kafka_broker(tmp_path_factory.mktemp("kafka"))
    broker.more = {"group.min.session.timeout.ms": "500"}
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def log(broker: KafkaBroker, request: pytest.FixtureRequest) -> Iterator[KafkaLog]:
    """A log whose members may hold a batch for ever, or for as long as a test says."""
    settings = KafkaLogSettings(
        bootstrap_servers=broker.bootstrap,
        num_partitions=NUM_PARTITIONS,
        session_timeout_s=1.0,
        max_poll_interval_s=getattr(request, "param", 600.0),
    )
    log = KafkaLog(settings)
    yield log
    log.close()


class Group:
    """Members on a topic that grows."""

    def __init__(self, log: KafkaLog) -> None:
        self.log, self.name, self.rows = log, uuid4().hex, StoredOffsets()
        self.topics = (f"a.{self.name}", f"b.{self.name}")
        log.create_topics(self.topics)
        self.stream = Stream(log, self.topics[0]).start()
        self.members: list[GroupMember] = []

    def join(self) -> GroupMember:
        member = GroupMember(self.log, self.topics, self.name, self.rows).start()
        self.members.append(member)
        return member

    def wait_shares(self, *sizes: int) -> None:
        wait_until(
            lambda: [len(member.numbers) for member in self.members] == list(sizes),
            f"shares of {sizes}",
        )

    def end(self) -> None:
        """Let everything be stored; check that it was, once."""
        self.stream.stop()
        sent = self.stream.acknowledged
        wait_until(lambda: len(self.rows.values) >= len(sent), "all is stored")
        for member in self.members:
            member.leave()
        assert self.stream.num_refused == 0
        assert Counter(self.rows.values) == Counter(sent)


def test_a_member_that_joins_in_mid_batch_stops_nobody_and_fences_nobody(log: KafkaLog) -> None:
    group = Group(log)
    slow, other = group.join(), group.join()
    group.wait_shares(3, 3)
    kept = other.numbers
    slow.hold()
    third = group.join()
    # The new round cannot end before the slow member polls again; the other one reads on. It
    # hears of the round at its next heartbeat, long before it has read this much.
    before = len(other.stored)
    wait_until(lambda: len(other.stored) > before + 1000, "the other member reads on")
    assert third.numbers == set()
    assert other.numbers == kept
    slow.go_on.set()
    group.wait_shares(2, 2, 2)
    assert other.numbers < kept
    assert slow.num_fenced == other.num_fenced == third.num_fenced == 0
    group.end()


def test_a_member_that_leaves_takes_nothing_from_the_others(log: KafkaLog) -> None:
    group = Group(log)
    first, second, third = group.join(), group.join(), group.join()
    group.wait_shares(2, 2, 2)
    before = first.numbers, second.numbers
    third.leave()
    group.members.remove(third)
    group.wait_shares(3, 3)
    assert before[0] < first.numbers
    assert before[1] < second.numbers
    for member in group.members:
        # Partition n of both topics belongs to the same member.
        assert len(member.assigned) == 2 * len(member.numbers)
    assert first.num_fenced == second.num_fenced == 0
    group.end()


@pytest.mark.parametrize("log", [3.0], indirect=True)
def test_a_member_that_does_not_poll_for_too_long_is_fenced_and_comes_back(log: KafkaLog) -> None:
    group = Group(log)
    slow, other = group.join(), group.join()
    group.wait_shares(3, 3)
    slow.hold()
    # Longer than max_poll_interval_s, although it lives.
    wait_until(lambda: len(other.numbers) == NUM_PARTITIONS, "the other member takes over")
    wait_until(slow.is_overtaken, "the other member stores what the slow one holds")
    slow.go_on.set()
    group.wait_shares(3, 3)
    assert slow.num_fenced >= 1
    assert other.num_fenced == 0
    group.end()
