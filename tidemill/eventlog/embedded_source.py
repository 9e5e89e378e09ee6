"""One member of a consumer group on the embedded log."""

import time
from pathlib import Path
from uuid import uuid4

from tidemill.eventlog.base import PositionLoader, Record, TopicPartition
from tidemill.eventlog.embedded_groups import Membership
from tidemill.eventlog.embedded_store import TopicFile

_PAUSES_S = (0.001, 0.002, 0.005, 0.01, 0.02)
"""Between looks at the files while nothing comes; a look costs a few microseconds."""


class EmbeddedSource:
    """Implements `EventSource`; used by one thread.

    A member that polls less often than once in `lease_s` loses its partitions to those that do.
    """

    def __init__(
        self,
        folder: Path,
        topics: tuple[str, ...],
        *,
        group: str,
        lease_s: float,
        positions: PositionLoader,
    ) -> None:
        """Open the topics and join the group.

        Raises:
            EventLogError: a topic does not exist.
            EventLogUnavailableError: the files cannot be opened.
        """
        self._load_position = positions
        self._files = {topic: TopicFile(folder, topic) for topic in topics}
        self._num_partitions = max(file.num_partitions for file in self._files.values())
        self._membership = Membership(folder, group=group, member=uuid4().hex, lease_s=lease_s)
        self._beat_every_s = min(lease_s / 4, 0.5)
        self._next_beat = 0.0
        self._held: frozenset[int] = frozenset()
        self._next_offsets: dict[TopicPartition, int] = {}
        self._turn = 0
        self._beat()

    def poll(self, *, max_records: int, timeout_s: float) -> list[Record]:
        """Return records of the assigned partitions, in order within each; empty at timeout.

        Calling it says that everything returned before is stored: partitions move to other
        members here and nowhere else.

        Raises:
            EventLogUnavailableError: the files cannot be read.
        """
        deadline = time.monotonic() + timeout_s
        pauses = iter(_PAUSES_S)
        pause = 0.0
        while True:
            if time.monotonic() >= self._next_beat:
                self._beat()
            versions = [file.version() for file in self._files.values()]
            records = self._read(max_records)
            if records:
                return records
            while versions == [file.version() for file in self._files.values()]:
                now = time.monotonic()
                if now >= deadline:
                    return []
                if now >= self._next_beat:
                    break
                pause = next(pauses, pause)
                time.sleep(min(pause, deadline - now))

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are this member's now."""
        return frozenset(
            TopicPartition(topic, number)
            for topic, file in self._files.items()
            for number in self._held
            if number < file.num_partitions
        )

    def rewind(self) -> None:
        """Ask the position loader again for every assigned partition."""
        self._next_offsets.clear()

    def close(self) -> None:
        """Leave the group, so that others take over at once."""
        self._membership.leave()
        for file in self._files.values():
            file.close()

    def _beat(self) -> None:
        # Nothing is held unless the beat succeeds.
        before, self._held = self._held, frozenset()
        self._held = self._membership.beat(self._num_partitions)
        self._next_beat = time.monotonic() + self._beat_every_s
        if before != self._held:
            self._next_offsets = {
                place: offset
                for place, offset in self._next_offsets.items()
                if place.partition in before & self._held
            }

    def _read(self, max_records: int) -> list[Record]:
        places = sorted(self.assignment())
        for place in places:
            if place not in self._next_offsets:
                self._next_offsets[place] = self._load_position(place) or 0
        # A busy partition must not starve the others: each poll begins with another one.
        self._turn += 1
        records: list[Record] = []
        reached: dict[TopicPartition, int] = {}
        for index in range(len(places)):
            place = places[(index + self._turn) % len(places)]
            found = self._files[place.topic].read(
                place.partition,
                offset=self._next_offsets[place],
                max_records=max_records - len(records),
            )
            if found:
                reached[place] = found[-1].offset + 1
                records.extend(found)
            if len(records) >= max_records:
                break
        # Only now: a file that failed half-way must not make the records before it skipped.
        self._next_offsets.update(reached)
        return records
