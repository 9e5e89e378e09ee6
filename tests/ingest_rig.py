"""An ingest worker on a log in memory, with a clock that the test moves."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select

from ingest.member import Member
from ingest.settings import IngestSettings
from tests.factories import NOW
from tests.memory_log import MemoryLog, MemorySource
from tidemill.contracts.experience import Experience
from tidemill.rewards.metrics import MetricsFile
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.storage.database import Database
from tidemill.storage.experiences import fetch_experience
from tidemill.storage.tables import DeadLetterRow, DuplicateDeliveryRow, FeedbackRow, InteractionRow

METRICS = """
[metrics.accepted]
type = "bool"
window_s = 60

[metrics.stars]
type = "float"
range = [1, 5]
window_s = 60
optional = true
aggregation = "mean"

[metrics.note]
type = "comment"
window_s = 30

[metrics.solved]
type = "bool"
level = "trajectory"
window_s = 60
optional = true
"""


def seconds(number: float) -> datetime:
    """Return a moment after the start of every test."""
    return NOW + timedelta(seconds=number)


@dataclass
class Rig:
    """A worker and what it wrote."""

    database: Database
    log: MemoryLog = field(default_factory=MemoryLog)
    metrics: MetricsFile = field(default_factory=lambda: parse_metrics(METRICS))
    settings: IngestSettings = field(
        default_factory=lambda: IngestSettings(close_grace_s=0, unmatched_after_s=600)
    )
    clock: datetime = NOW
    worker: Member = field(init=False)

    def __post_init__(self) -> None:
        self.worker = Member(
            self.database, self.log, self.settings, self.metrics, now=lambda: self.clock
        )

    def read(self, only: str | None = None) -> int:
        """Read everything there is, of one topic or of both."""
        source = self.worker._source
        assert isinstance(source, MemorySource)
        source.only = only
        total = 0
        while number := self.worker.read_once(timeout_s=0):
            total += number
        return total

    def close_at(self, moment: datetime) -> int:
        """Close what is due at a moment."""
        self.clock = moment
        return self.worker.close_once()

    def run_to(self, moment: datetime) -> None:
        """Read everything, then close what is due."""
        self.read()
        self.close_at(moment)

    def state_of(self, feedback_id: str, tenant: str = "default") -> str:
        with self.database.reading() as session:
            return session.get_one(FeedbackRow, (tenant, feedback_id)).state

    def interaction(self, interaction_id: str, tenant: str = "default") -> InteractionRow:
        with self.database.reading() as session:
            return session.get_one(InteractionRow, (interaction_id, tenant))

    def experience(self, interaction_id: str, tenant: str = "default") -> Experience | None:
        with self.database.reading() as session:
            return fetch_experience(session, tenant=tenant, experience_id=interaction_id)

    def dead_letters(self) -> list[DeadLetterRow]:
        return self._all(DeadLetterRow)

    def duplicates(self) -> list[DuplicateDeliveryRow]:
        return self._all(DuplicateDeliveryRow)

    def _all(self, table: Any) -> list[Any]:
        with self.database.reading() as session:
            return list(session.scalars(select(table)))
