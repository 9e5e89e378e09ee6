"""One part of ingest as a process: `python -m tests.ingest_part PART SHARED SETTINGS AHEAD_S`.

PART is `worker` or `api_process`; the API's clock goes AHEAD_S seconds ahead of the machine's.
"""

import sys
import time
from datetime import UTC, datetime, timedelta

from ingest.settings import IngestSettings
from tidemill.process import configure_logging, stop_on_signal
from tidemill.settings import SharedSettings


def run_worker(shared: SharedSettings, settings: IngestSettings) -> int:
    # Only what the part needs: importing takes most of its start.
    from ingest.worker import run

    return run(shared, settings)


def run_api(shared: SharedSettings, settings: IngestSettings, ahead: timedelta) -> int:
    true_time = time.time
    # What the Kafka client stamps its records with.
    time.time = lambda: true_time() + ahead.total_seconds()
    from ingest.api_process import PART, Server

    configure_logging(PART)
    stop = stop_on_signal()
    server = Server(shared, settings)
    server.acceptor.now = lambda: datetime.now(UTC) + ahead
    server.run(stop)
    return 0


def main() -> int:
    part, shared_text, settings_text, ahead_s = sys.argv[1:]
    shared = SharedSettings.model_validate_json(shared_text)
    settings = IngestSettings.model_validate_json(settings_text)
    if part == "worker":
        return run_worker(shared, settings)
    return run_api(shared, settings, timedelta(seconds=float(ahead_s)))


if __name__ == "__main__":
    sys.exit(main())
