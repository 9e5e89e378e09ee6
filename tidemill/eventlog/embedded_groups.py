"""Who reads which partition: members of consumer groups and their leases, in one SQLite file.

Leases only share out work and may be lost in a power cut; offsets live with the rows, in SQL.
"""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from tidemill.errors import EventLogUnavailableError
from tidemill.eventlog.topics import next_lease_moves, share_of

_SCHEMA = """
CREATE TABLE IF NOT EXISTS members (
    grp TEXT NOT NULL, member TEXT NOT NULL, seen_at REAL NOT NULL, PRIMARY KEY (grp, member)
);
CREATE TABLE IF NOT EXISTS leases (
    grp TEXT NOT NULL, partition INTEGER NOT NULL, member TEXT NOT NULL,
    PRIMARY KEY (grp, partition)
);
"""


class Membership:
    """One member of one group; used by one thread at a time."""

    def __init__(
        self,
        folder: Path,
        *,
        group: str,
        member: str,
        lease_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Connect; `beat` joins.

        Raises:
            EventLogUnavailableError: the file cannot be opened.
        """
        self._group = group
        self._member = member
        self._lease_s = lease_s
        self._clock = clock
        try:
            # The underscore keeps it apart from topics.
            self._connection = sqlite3.connect(
                folder / "_groups.db", timeout=10.0, check_same_thread=False
            )
            self._connection.isolation_level = None
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except sqlite3.Error as error:
            raise EventLogUnavailableError(
                f"cannot open the groups in {folder}: {error}"
            ) from error

    def beat(self, num_partitions: int) -> frozenset[int]:
        """Give a sign of life, give up and take partitions, and return those held now.

        Call it only when everything read so far is stored: what is given up here may be read by
        another member at once.

        Raises:
            EventLogUnavailableError: the file cannot be written; hold nothing.
        """
        now = self._clock()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                held = self._settle(now, num_partitions)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise EventLogUnavailableError(
                f"no sign of life to group {self._group}: {error}"
            ) from error
        return held

    def leave(self) -> None:
        """Give everything up, so that others take over at their next poll."""
        names = (self._group, self._member)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("DELETE FROM leases WHERE grp = ? AND member = ?", names)
            self._connection.execute("DELETE FROM members WHERE grp = ? AND member = ?", names)
            self._connection.execute("COMMIT")
        except sqlite3.Error:
            # The lease ends by itself.
            pass
        finally:
            self._connection.close()

    def _settle(self, now: float, num_partitions: int) -> frozenset[int]:
        execute = self._connection.execute
        # Both directions, so that a clock set back leaves no member for ever.
        execute(
            "DELETE FROM members WHERE grp = ? AND abs(seen_at - ?) > ?",
            (self._group, now, self._lease_s),
        )
        execute("INSERT OR REPLACE INTO members VALUES (?, ?, ?)", (self._group, self._member, now))
        rows = execute("SELECT member FROM members WHERE grp = ?", (self._group,))
        living = frozenset(row[0] for row in rows)
        owners = dict(
            execute("SELECT partition, member FROM leases WHERE grp = ?", (self._group,)).fetchall()
        )
        mine = frozenset(number for number, owner in owners.items() if owner == self._member)
        share = share_of(self._member, living, num_partitions)
        given_up, taken = next_lease_moves(owners, share, member=self._member, living=living)
        for number in given_up:
            execute("DELETE FROM leases WHERE grp = ? AND partition = ?", (self._group, number))
        for number in taken:
            execute(
                "INSERT OR REPLACE INTO leases VALUES (?, ?, ?)",
                (self._group, number, self._member),
            )
        return (mine - given_up) | taken
