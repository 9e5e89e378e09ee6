"""The join: how fast one worker takes a full log into rows."""

from dataclasses import dataclass

from sqlalchemy import func, select

from benchmarks.figures import Target, judge, median
from benchmarks.harness import Rounds
from benchmarks.ingest.apart import ask
from benchmarks.ingest.column import Column, Installation, Servers, installed
from benchmarks.ingest.drain import Drain, Drained
from benchmarks.ingest.events import Stream, make_stream
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.base import EventSink, NewRecord, Position
from tidemill.eventlog.opening import open_log
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.storage.tables import (
    DeadLetterRow,
    DuplicateDeliveryRow,
    ExperienceRow,
    FeedbackRow,
    InteractionRow,
)

_CHUNK = 1000
_PATIENCE_S = 600.0
_LEAST_PER_S = {Column.EMBEDDED: 20_000, Column.KAFKA: 12_000}


class JoinError(Exception):
    """The rows are not those of the events; the figures would mean nothing."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    num_rounds: int
    num_pairs: int
    """Interactions, each with one feedback."""


QUICK = Size(num_rounds=1, num_pairs=5_000)
FULL = Size(num_rounds=5, num_pairs=20_000)


@dataclass(slots=True)
class JoinPart:
    """All rounds of one column."""

    column: Column
    size: Size
    rounds: Rounds

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept; each has a log and tables of its own."""
        for number in range(self.size.num_rounds):
            if not self.rounds.has(self._key(number)):
                with installed(servers) as installation:
                    stream = make_stream(self.size.num_pairs, seed=number)
                    self._measure_round(number, installation, stream)

    def figures(self) -> dict[str, float | None]:
        """Return medians over the rounds."""
        drained = [
            self.rounds.kept(self._key(number), Drained) for number in range(self.size.num_rounds)
        ]
        name = f"{self.column}/join"
        return {
            f"{name}/events_per_s": median([one.per_s for one in drained]),
            f"{name}/cpu_us_per_event": median([one.cpu_us_per_event for one in drained]),
            f"{name}/peak_rss_mib": median([one.peak_rss_mib for one in drained]),
        }

    def targets(self) -> list[Target]:
        """Hold the rate against what the issue asks."""
        name = f"{self.column}/join/events_per_s"
        return [judge(name, self.figures()[name], _LEAST_PER_S[self.column], side="least")]

    def _measure_round(self, number: int, installation: Installation, stream: Stream) -> None:
        fill(installation.shared, stream.interactions, stream.feedback)
        asked = Drain(
            shared=installation.shared,
            settings=installation.settings,
            num_records=stream.num_records,
        )

        def run() -> Drained:
            drained = ask("benchmarks.ingest.drain", asked, Drained, timeout_s=_PATIENCE_S)
            check_rows(installation.shared, stream)
            return drained

        self.rounds.measure(self._key(number), Drained, run)

    def _key(self, number: int) -> str:
        return f"{self.column}/join/{self.size.num_pairs}/{number}"


def fill(shared: SharedSettings, interactions: list[NewRecord], feedback: list[NewRecord]) -> None:
    """Append both topics, side by side.

    Raises:
        EventLogError: the log did not take a record.
    """
    log = open_log(shared)
    log.create_topics(TOPICS)
    sink = log.sink()
    for first in range(0, max(len(interactions), len(feedback)), _CHUNK):
        _append(sink, INTERACTIONS, interactions[first : first + _CHUNK])
        _append(sink, FEEDBACK, feedback[first : first + _CHUNK])
    sink.close()
    log.close()


def _append(sink: EventSink, topic: str, records: list[NewRecord]) -> None:
    for place in sink.append_all(topic, records).result():
        if not isinstance(place, Position):
            raise place


def check_rows(shared: SharedSettings, stream: Stream) -> None:
    """Count the rows.

    Raises:
        JoinError: an event became no row, or two, or nothing was joined.
    """
    is_joined = FeedbackRow.state == "joined"
    queries = {
        "interactions": select(func.count()).select_from(InteractionRow),
        "feedback": select(func.count()).select_from(FeedbackRow),
        "joined feedback": select(func.count()).select_from(FeedbackRow).where(is_joined),
        "repeats": select(func.count()).select_from(DuplicateDeliveryRow),
        "dead letters": select(func.count()).select_from(DeadLetterRow),
        "experiences": select(func.count()).select_from(ExperienceRow),
    }
    pairs = stream.num_pairs
    expected = dict(zip(queries, (pairs, pairs, pairs, stream.num_repeats, 0, 0), strict=True))
    database = Database(shared.database_url)
    with database.reading() as session:
        found = {name: session.scalar(query) for name, query in queries.items()}
    database.close()
    if found != expected:
        raise JoinError(f"the rows are {found}, the events {expected}")
