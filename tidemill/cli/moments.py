"""Moments on the command line: a time, or how long ago. Pure."""

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_moment(text: str, *, now: datetime) -> datetime:
    """Return the moment that `2h` (s, m, h, d ago) or an ISO time means; UTC without a zone.

    Raises:
        ValueError: the text is neither.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(seconds=float(ago[1]) * _UNIT_S[ago[2]])
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is no time: give 2h, 30m, 7d, or 2026-12-01T12:00:00"
        ) from error
