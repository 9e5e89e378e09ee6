"""What both logs agree on: names of topics, the size of a record, the partition of a key.

Pure.
"""

import re
from collections.abc import Iterable, Mapping
from zlib import crc32

from tidemill.contracts.codec import MAX_EVENT_BYTES
from tidemill.errors import EventLogError

MAX_RECORD_BYTES = MAX_EVENT_BYTES
"""A log takes no larger value."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._\-]{0,199}")


def check_topic(topic: str) -> str:
    """Return the name of a topic.

    Raises:
        EventLogError: it could not be a file's name and a Kafka topic's.
    """
    if _NAME.fullmatch(topic) is None:
        raise EventLogError(
            f"not a topic: {topic!r}; begin with a letter, then letters, digits, dot, _ and -"
        )
    return topic


def check_record(topic: str, key: str, value: bytes) -> None:
    """Refuse what no log could store, before it meets the records of others.

    Raises:
        EventLogError: more than `MAX_RECORD_BYTES`, or a key that is not Unicode text.
    """
    if len(value) > MAX_RECORD_BYTES:
        raise EventLogError(
            f"a record of {len(value)} bytes for {topic}: at most {MAX_RECORD_BYTES}, send less"
        )
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise EventLogError(f"a key for {topic} is no Unicode text: {key!a:.80}") from error


def partition_of(key: str, num_partitions: int) -> int:
    """Return the partition of a key: CRC-32 of its UTF-8 bytes, modulo the number of partitions."""
    return crc32(key.encode()) % num_partitions


def share_of(member: str, members: Iterable[str], num_partitions: int) -> frozenset[int]:
    """Return the partitions that are a member's share: every n-th, by the members' order.

    All members compute the same shares, so they need no leader. Empty for a stranger.
    """
    ordered = sorted(members)
    if member not in ordered:
        return frozenset()
    return frozenset(range(ordered.index(member), num_partitions, len(ordered)))


def next_lease_moves(
    owners: Mapping[int, str], share: frozenset[int], *, member: str, living: frozenset[str]
) -> tuple[frozenset[int], frozenset[int]]:
    """Return which partitions a member gives up now, and which it may take.

    It takes only what nobody alive holds: the old owner gives up first, at its next poll, when it
    has stored all that it was given.
    """
    mine = frozenset(number for number, owner in owners.items() if owner == member)
    held = frozenset(
        number for number, owner in owners.items() if owner != member and owner in living
    )
    return mine - share, share - mine - held
