"""A stack with its tables, its topics and the processes of ingest on it."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import func, select

from ingest.settings import IngestSettings
from tests.chaos.fleet import Fleet, running_fleet
from tests.chaos.stacks import Stack, running_stack
from tidemill.contracts.events import FEEDBACK, INTERACTIONS, TOPICS
from tidemill.eventlog.base import EventLog
from tidemill.eventlog.opening import open_log
from tidemill.storage.database import Database
from tidemill.storage.feedback import PENDING
from tidemill.storage.interactions import OPEN
from tidemill.storage.keys import Scope, create_key
from tidemill.storage.schema import upgrade
from tidemill.storage.tables import FeedbackRow, InteractionRow, LogOffsetRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Real processes on a real log and a real database."""

    stack: Stack
    database: Database
    log: EventLog
    fleet: Fleet

    def create_key(self) -> str:
        """Return a key that may write feedback and interactions."""
        with self.database.transaction() as session:
            _, key = create_key(
                session,
                tenant="default",
                scopes=[Scope.FEEDBACK_WRITE, Scope.INTERACTIONS_WRITE],
                label="a test",
                now=datetime.now(UTC),
            )
        return key

    def count_in_log(self) -> int:
        """Return how many records were appended to both topics."""
        topics = (INTERACTIONS, FEEDBACK)
        return sum(bounds.end for topic in topics for bounds in self.log.bounds(topic).values())

    def count_read(self) -> int:
        """Return how many log records the workers have taken into rows."""
        with self.database.reading() as session:
            return int(session.scalar(select(func.sum(LogOffsetRow.num_records))) or 0)

    def is_at_rest(self) -> bool:
        """Tell whether every interaction is closed and no feedback waits for one."""
        with self.database.reading() as session:
            return not any(
                session.scalar(select(func.count()).select_from(row).where(row.state == state))
                for row, state in ((InteractionRow, OPEN), (FeedbackRow, PENDING))
            )


@contextmanager
def running_cluster(
    stack_name: str,
    folder: Path,
    settings: IngestSettings,
    *,
    num_workers: int,
    ahead_s: Sequence[float] = (0.0, 0.0),
) -> Iterator[Cluster]:
    """Run a cluster whose data lies in an empty folder.

    Args:
        stack_name: one of `STACKS`.
        folder: for data and logs.
        settings: of every process.
        num_workers: how many ingest workers.
        ahead_s: how far the clock of each API process goes ahead; there are as many as the stack
            may have.

    Raises:
        ServerError: a server is missing or did not start.
    """
    with ExitStack() as ends:
        stack = ends.enter_context(running_stack(stack_name, folder))
        database = Database(stack.shared.database_url)
        ends.callback(database.close)
        upgrade(database)
        log = open_log(stack.shared)
        ends.callback(log.close)
        log.create_topics(TOPICS)
        fleet = ends.enter_context(
            running_fleet(
                stack.shared,
                settings,
                folder / "parts",
                num_workers=num_workers,
                ahead_s=ahead_s[: stack.num_apis],
            )
        )
        yield Cluster(stack=stack, database=database, log=log, fleet=fleet)
