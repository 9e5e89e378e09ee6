"""Moments on the command line: a time, or how long ago. Pure."""

import re
from datetime import UTC, datetime, timedelta

_AGO = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def parse_moment(text: str, *, now: datetime) -> datetime:
    """Return the moment that `2h` (s, m, h, d ago) or an ISO time means; UTC without a zone.

    Raises:
        ValueError: the text is neither, or the duration is 0.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - _duration(ago[1], ago[2])
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(
            f"{text!r} is no time: give more than 0 as in 2h, 30m, 7d, or 2026-12-01T12:00:00"
        ) from error


def _duration(number: str, unit: str) -> timedelta:
    duration = timedelta(seconds=float(number) * _UNIT_S[unit])
    if not duration:
        # Nothing is younger than now: whoever asks for it gets an empty answer and believes it.
        raise ValueError("no time at all")
    return duration
