"""Many open interactions at once, by the storage layer's own bulk insert and past the log."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import psycopg

from benchmarks.ingest.events import make_interaction
from tidemill.contracts.codec import encode
from tidemill.contracts.events import InteractionServed
from tidemill.contracts.ids import new_interaction_id, new_trajectory_id
from tidemill.storage.database import Database
from tidemill.storage.interactions import NewInteraction, insert_interactions

_CHUNK = 5_000
_SAMPLE_EVERY = 5
_OFFSETS_FROM = 10**12
"""Beyond those of the records that the log does hold."""
_OPEN_FOR = timedelta(days=30)


@dataclass(slots=True)
class Filling:
    """Adds rows, and remembers some of their ids for feedback on them."""

    database: Database
    num_partitions: int
    num_rows: int = 0
    sample: list[tuple[str, str]] = field(default_factory=list)
    """Interaction and trajectory of each fifth row that nobody has taken."""

    def fill_to(self, number: int) -> None:
        """Add open interactions until there are so many.

        Raises:
            StorageError: the database refused.
        """
        pattern = make_interaction(Random(1))  # noqa: S311  no secret
        while self.num_rows < number:
            last = min(number, self.num_rows + _CHUNK)
            rows = [self._row(pattern, one) for one in range(self.num_rows, last)]
            with self.database.transaction() as session:
                insert_interactions(session, rows)
            self.sample += _sampled(rows)
            self.num_rows = last

    def settle(self) -> None:
        """Let the database finish what a bulk insert leaves behind; a live one has long done so.

        PostgreSQL would count the rows and write its pages within the next minutes, beside
        whatever is measured then.
        """
        url = self.database.url
        if self.database.is_sqlite:
            with closing(sqlite3.connect(str(url.database), isolation_level=None)) as embedded:
                embedded.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE) interactions")
            connection.execute("CHECKPOINT")

    def take(self, number: int, dice: Random) -> list[tuple[str, str]]:
        """Return some that were added, from all over the table, each once.

        Raises:
            ValueError: there are not so many.
        """
        if number > len(self.sample):
            raise ValueError(f"{number} of {len(self.sample)} interactions; fill in more first")
        dice.shuffle(self.sample)
        taken, self.sample = self.sample[:number], self.sample[number:]
        return taken

    def _row(self, pattern: InteractionServed, number: int) -> NewInteraction:
        trajectory = new_trajectory_id()
        names = {"trajectory_id": trajectory, "interaction_id": new_interaction_id(trajectory)}
        event = pattern.model_copy(update=names)
        now = datetime.now(UTC)
        return NewInteraction(
            event=event,
            document=encode(event),
            partition=number % self.num_partitions,
            offset=_OFFSETS_FROM + number,
            appended_at=now,
            closes_at=now + _OPEN_FOR,
        )


def _sampled(rows: Sequence[NewInteraction]) -> list[tuple[str, str]]:
    return [(one.event.interaction_id, one.event.trajectory_id) for one in rows[::_SAMPLE_EVERY]]
