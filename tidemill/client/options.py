"""How a client sends: times, attempts, and limits of its outbox."""

import math
from dataclasses import dataclass, fields

from tidemill.errors import ConfigurationError

MAX_BATCH_ITEMS = 1000
MAX_BATCH_BYTES = 4_194_304
"""What the feedback API takes in one request as shipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of a client; the defaults suit a product's server.

    Raises:
        ConfigurationError: a number is outside its bounds.
    """

    timeout_s: float = 10.0
    """To connect, to send, to wait for the answer: each at most this long."""
    attempts: int = 6
    """Of `send`, `send_batch` and `send_interaction`. What is queued is tried until `close`."""
    backoff_first_s: float = 0.1
    """Before attempt n + 1: a random wait of at most this times 2^(n - 1)."""
    backoff_max_s: float = 10.0
    """No random wait is longer."""
    retry_after_max_s: float = 60.0
    """A `Retry-After` of the API is obeyed up to this long."""
    max_connections: int = 20
    max_idle_connections: int = 10
    """Kept open for the next request."""

    send_after_items: int = 100
    """Queued feedback is sent when this many wait, or ..."""
    send_after_s: float = 1.0
    """... when the oldest has waited this long."""
    max_batch_items: int = MAX_BATCH_ITEMS
    """In one request, as `ingest.max_batch_items` allows."""
    max_batch_bytes: int = MAX_BATCH_BYTES
    """In one request, as `ingest.max_batch_bytes` allows."""
    max_queued: int = 10_000
    """Feedback in the outbox, that under way included."""
    max_queued_bytes: int = 33_554_432
    """The same in bytes."""
    queue_block_s: float = 0.0
    """How long `queue` waits for room in a full outbox; 0 = it raises at once."""
    close_timeout_s: float = 10.0
    """How long `close`, also at interpreter exit, goes on trying."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, least = getattr(self, one.name), _least(one.name)
            if not (math.isfinite(value) and value >= least):
                raise ConfigurationError(f"{one.name} = {value}: must be at least {least}, finite")
        if self.timeout_s == 0:
            raise ConfigurationError("timeout_s = 0: no request could be answered")
        # Otherwise feedback could be queued that no request may carry.
        if self.max_batch_bytes > self.max_queued_bytes:
            raise ConfigurationError(
                f"max_batch_bytes = {self.max_batch_bytes} is above max_queued_bytes"
            )


def _least(name: str) -> int:
    return 0 if name.endswith("_s") or name == "max_idle_connections" else 1
