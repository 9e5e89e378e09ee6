"""Up to which moment a partition is known completely. Pure."""

from datetime import datetime, timedelta

from tidemill.eventlog.base import Bounds

_TICK = timedelta(microseconds=1)


def known_until(
    *,
    next_offset: int | None,
    appended_until: datetime | None,
    bounds: Bounds,
    now: datetime,
) -> datetime | None:
    """Return the moment up to which every record of a partition has been read.

    Args:
        next_offset: the first record not yet read; None = nothing was read.
        appended_until: append time of the last record read.
        bounds: what the log holds, asked for after `now`.
        now: the wall clock.

    Returns:
        `now` at the end of the log; else just before the append time of the last record read,
        since the next one may have the same; None when nothing is known.
    """
    read = bounds.first if next_offset is None else next_offset
    if read >= bounds.end:
        return now
    return None if appended_until is None else appended_until - _TICK
