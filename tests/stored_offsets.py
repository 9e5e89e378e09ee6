"""What SQL is to the readers of a log: records are stored with their offsets, or not at all."""

import threading
from dataclasses import dataclass, field

from tidemill.eventlog.base import Record, TopicPartition


@dataclass
class StoredOffsets:
    """Offsets that move by compare-and-set, and what was stored with them; thread-safe."""

    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    loads: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, place: TopicPartition) -> int | None:
        """Where a partition stands."""
        with self.lock:
            self.loads += 1
            return self.offsets.get(place)

    def store(self, records: list[Record]) -> bool:
        """Store a batch and its offsets, or nothing, if another member was faster."""
        first: dict[TopicPartition, int] = {}
        end: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(record.topic_partition, record.offset)
            end[record.topic_partition] = record.offset + 1
        with self.lock:
            if any(self.offsets.get(place, 0) != offset for place, offset in first.items()):
                return False
            self.offsets.update(end)
            self.values.extend(record.value for record in records)
            return True
