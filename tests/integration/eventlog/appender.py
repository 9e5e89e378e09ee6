"""A process to be killed: appends numbered records and prints each once it is acknowledged.

Arguments: `log | spool | burst | retain`, the folder, a name for its records, how many.
"""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from tidemill.eventlog import embedded_store
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.eventlog.spool import Spool
from tidemill.settings import EmbeddedLogSettings

TOPIC = "crash"
IN_FLIGHT = 8


def say(line: str) -> None:
    # Unbuffered, so that a kill cannot take back what was said.
    os.write(1, f"{line}\n".encode())


def append_to_log(folder: Path, name: str, count: int, *, in_flight: int) -> None:
    sink = EmbeddedLog(folder, EmbeddedLogSettings()).sink()
    for start in range(0, count, in_flight):
        values = [f"{name}-{number}" for number in range(start, min(start + in_flight, count))]
        futures = [sink.append(TOPIC, f"{name}{len(value)}", value.encode()) for value in values]
        for value, future in zip(values, futures, strict=True):
            future.result()
            say(value)
    sink.close()


def append_to_spool(folder: Path, name: str, count: int) -> None:
    spool = Spool(folder)
    for number in range(count):
        spool.append(TOPIC, name, f"{name}-{number}".encode())
        say(f"{name}-{number}")


def remove_old(folder: Path, count: int) -> None:
    """Remove whatever but the last 20 records of each partition, again and again; shrink the file.

    Nothing is kept in reserve, so that a kill also meets pages on the move.
    """
    embedded_store.TopicFile.give_back.__kwdefaults__["spare_bytes"] = 0
    log = EmbeddedLog(folder, EmbeddedLogSettings(retention_s=0.001))
    for _ in range(count):
        committed = {number: held.end - 20 for number, held in log.bounds(TOPIC).items()}
        if log.retain(TOPIC, committed, now=datetime.now(UTC)):
            say(" ".join(str(held.first) for held in log.bounds(TOPIC).values()))


def main(kind: str, folder: Path, name: str, count: int) -> None:
    if kind == "spool":
        append_to_spool(folder, name, count)
    elif kind == "retain":
        remove_old(folder, count)
    elif kind == "burst":
        append_to_log(folder, name, count, in_flight=count)
    else:
        append_to_log(folder, name, count, in_flight=IN_FLIGHT)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
