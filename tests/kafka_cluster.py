"""Three Kafka brokers on one machine, so that one may be lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.servers.kafka import new_cluster
from tests.servers import KafkaBroker, new_kafka_broker

_COPIES = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.min.session.timeout.ms": "500",
    # A dead broker is found out fast.
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "replica.lag.time.max.ms": "3000",
}


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Brokers 1 to 3; each is a controller too."""

    brokers: dict[int, KafkaBroker]

    @property
    def bootstrap(self) -> str:
        """Where all of them listen."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self, *numbers: int) -> None:
        """Start these, or all, at once: none is ready before there is a majority."""
        chosen = [self.brokers[number] for number in numbers or self.brokers]
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(broker.start) for broker in chosen]:
                started.result()

    def kill(self) -> None:
        """End all at once."""
        for broker in self.brokers.values():
            broker.kill()


@contextmanager
def running_cluster(folder: Path) -> Iterator[KafkaCluster]:
    """Yield three brokers that are killed at the end."""
    brokers = {number: new_kafka_broker(folder / str(number)) for number in (1, 2, 3)}
    voters = ",".join(
        f"{number}@127.0.0.1:{broker.controller_port}" for number, broker in brokers.items()
    )
    cluster_id = new_cluster()
    for number, broker in brokers.items():
        broker.cluster, broker.heap = cluster_id, "256m"
        broker.more = _COPIES | {"node.id": str(number), "controller.quorum.voters": voters}
    cluster = KafkaCluster(brokers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
