"""Ids that a client makes, so that a record has the same one at every attempt."""

import secrets
import time
from uuid import UUID


def new_id() -> str:
    """Return a fresh UUIDv7: it grows with time, which the indices of the ledger like."""
    milliseconds = time.time_ns() // 1_000_000
    # Version 7 and the variant of RFC 9562 stand between three runs of random bits.
    number = milliseconds << 80 | 0x7 << 76 | secrets.randbits(12) << 64
    return str(UUID(int=number | 0b10 << 62 | secrets.randbits(62)))


def new_interaction_id(trajectory_id: str) -> str:
    """Return `<trajectory_id>.<UUIDv7>`."""
    return f"{trajectory_id}.{new_id()}"
