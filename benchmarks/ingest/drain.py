"""One worker's join in a process of its own: reads a log that was filled before, as fast as it can.

Its one argument is a `Drain` as JSON; it prints a `Drained` as JSON.
"""

import resource
import sys
import time

from pydantic import BaseModel

from ingest.member import Member
from ingest.settings import IngestSettings
from tidemill.eventlog.opening import open_log
from tidemill.rewards.metrics_file import load_metrics
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database

_US = 1e6


class Drain(BaseModel):
    """What is read."""

    shared: SharedSettings
    settings: IngestSettings
    num_records: int
    """The log holds so many beyond the group's offsets."""


class Drained(BaseModel):
    """What it took after the first batch: joining the group is no cost of an event."""

    per_s: float
    us_per_event: float
    """Wall clock, the database's work included."""
    cpu_us_per_event: float
    """Of this process alone."""
    peak_rss_mib: float


def drain(asked: Drain) -> Drained:
    """Read everything as a worker does, closing included."""
    database = Database(asked.shared.database_url)
    log = open_log(asked.shared)
    member = Member(database, log, asked.settings, load_metrics(asked.shared.metrics))
    first = 0
    while first == 0:
        first = member.read_once()
    started, started_cpu = time.perf_counter(), time.process_time()
    taken, next_close = first, started
    while taken < asked.num_records:
        taken += member.read_once()
        if time.perf_counter() >= next_close:
            member.close_once()
            next_close = time.perf_counter() + asked.settings.close_every_s
    seconds = time.perf_counter() - started
    cpu_s = time.process_time() - started_cpu
    member.close()
    log.close()
    database.close()
    counted = taken - first
    return Drained(
        per_s=counted / seconds,
        us_per_event=seconds / counted * _US,
        cpu_us_per_event=cpu_s / counted * _US,
        # Linux counts it in KiB.
        peak_rss_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def main() -> int:
    """Return the exit code."""
    sys.stdout.write(drain(Drain.model_validate_json(sys.argv[1])).model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main())
