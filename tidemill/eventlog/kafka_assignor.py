"""Shares the partitions of a group out among its members, without stopping those it leaves alone.

The leader of a group, which is one of its members, does so for all of them (KIP-429).
"""

from collections.abc import Callable, Iterable
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from tidemill.eventlog.sharing import Claim, first_round, owners_of, share_out

_SUBSCRIPTION_VERSION = 2
"""The first one that tells what a member holds and since which generation."""
_ASSIGNMENT_VERSION = 1


class CooperativeAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One for each consumer: partition n of every topic to the same member.

    kafka-python's own cooperative assignor spreads the partitions of different topics at will.
    """

    name = "tidemill-cooperative"
    version = _SUBSCRIPTION_VERSION

    def __init__(self) -> None:
        self.held: Callable[[], Iterable[Any]] = lambda: ()
        """Tells which partitions the consumer has now; its builder sets it."""
        self._generation = -1

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return that members keep what they have while they join again."""
        return [RebalanceProtocol.COOPERATIVE]

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return what this member tells the leader."""
        by_topic: dict[str, list[int]] = {}
        for place in self.held():
            by_topic.setdefault(place.topic, []).append(place.partition)
        kind = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=self.version,
            topics=sorted(topics),
            user_data=b"",
            owned_partitions=[
                kind(topic=topic, partitions=sorted(numbers))
                for topic, numbers in sorted(by_topic.items())
            ],
            generation_id=self._generation,
        )

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        """Remember the generation of what was assigned."""
        del assignment
        self._generation = generation

    def assign(self, cluster: Any, members: list[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Return what each member is to have after this round."""
        counts = {
            topic: len(cluster.partitions_for_topic(topic) or ())
            for member in members
            for topic in member.metadata.topics
        }
        owners = owners_of(_claim_of(member) for member in members)
        names = [member.member_id for member in members]
        shares = first_round(owners, share_out(owners, names, max(counts.values(), default=0)))
        return {name: _assignment(shares[name], counts) for name in names}


def _claim_of(member: Any) -> Claim:
    owned = member.metadata.owned_partitions or ()
    numbers = frozenset(number for place in owned for number in place.partitions)
    return Claim(member.member_id, member.metadata.generation_id, numbers)


def _assignment(numbers: frozenset[int], counts: dict[str, int]) -> ConsumerProtocolAssignment:
    places = [
        (topic, sorted(number for number in numbers if number < count))
        for topic, count in sorted(counts.items())
    ]
    return ConsumerProtocolAssignment(_ASSIGNMENT_VERSION, places, b"")
