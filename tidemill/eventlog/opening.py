"""Which log an installation has."""

from tidemill.eventlog.base import EventLog
from tidemill.eventlog.embedded import EmbeddedLog
from tidemill.settings import EmbeddedLogSettings, SharedSettings


def open_log(shared: SharedSettings) -> EventLog:
    """Return the log that the settings name; the caller closes it.

    Raises:
        EventLogUnavailableError: it cannot be reached.
    """
    if isinstance(shared.log, EmbeddedLogSettings):
        return EmbeddedLog(shared.log_path, shared.log)
    # Its client library is needed only here.
    from tidemill.eventlog.kafka import KafkaLog

    return KafkaLog(shared.log)
