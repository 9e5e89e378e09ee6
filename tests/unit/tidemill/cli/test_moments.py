from datetime import timedelta

import pytest

from tests.factories import NOW
from tidemill.cli.moments import parse_moment


@pytest.mark.parametrize(
    ("text", "ago"),
    [("30s", 30), ("1.5m", 90), ("2h", 7200), ("1d", 86_400), ("2026-12-01T11:00:00", 3600)],
)
def test_a_moment_is_a_time_or_how_long_ago(text: str, ago: float) -> None:
    assert NOW - parse_moment(text, now=NOW) == timedelta(seconds=ago)


def test_a_zone_is_heeded() -> None:
    assert parse_moment("2026-12-01T13:00:00+01:00", now=NOW) == NOW


@pytest.mark.parametrize("text", ["", "2 h", "yesterday", "9999999999d", "-1h"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="as in 2h"):
        parse_moment(text, now=NOW)


@pytest.mark.parametrize("text", ["0h", "0.0d", "0s", "0.0000001s"])
def test_no_time_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="give more than 0"):
        parse_moment(text, now=NOW)
