"""Reads a topic as it grows, without a group: for people who want to look."""

from tidemill.eventlog.base import EventLog, Record

_READ_AT_ONCE = 500


class Follower:
    """Remembers how far it has read in each partition; used by one thread."""

    def __init__(self, log: EventLog, topic: str, *, from_beginning: bool) -> None:
        """Begin at the first record that is kept, or at the end.

        Raises:
            EventLogError: the topic does not exist, or the log cannot be read.
        """
        self._log = log
        self._topic = topic
        self._next = {
            partition: bounds.first if from_beginning else bounds.end
            for partition, bounds in log.bounds(topic).items()
        }

    def poll(self) -> list[Record]:
        """Return what is new, by append time; order within a partition is the log's.

        Raises:
            EventLogError: the log cannot be read.
        """
        found: list[Record] = []
        for partition, bounds in self._log.bounds(self._topic).items():
            offset = self._next.setdefault(partition, bounds.first)
            if offset >= bounds.end:
                continue
            records = self._log.read(
                self._topic, partition, offset=offset, max_records=_READ_AT_ONCE
            )
            if records:
                self._next[partition] = records[-1].offset + 1
            found += records
        return sorted(found, key=lambda one: (one.appended_at, one.partition, one.offset))
