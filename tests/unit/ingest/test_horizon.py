from datetime import datetime, timedelta

import pytest

from ingest.horizon import known_until
from tests.ingest_rig import seconds
from tidemill.eventlog.base import Bounds

JUST_BEFORE_5 = seconds(5) - timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("next_offset", "appended_until", "bounds", "known"),
    [
        (None, None, Bounds(0, 0), seconds(9)),  # an empty partition is known completely
        (None, None, Bounds(3, 3), seconds(9)),
        (None, None, Bounds(0, 1), None),  # something is there, nothing was read
        (4, seconds(5), Bounds(0, 4), seconds(9)),
        (3, seconds(5), Bounds(0, 4), JUST_BEFORE_5),  # the next may have the same time
    ],
)
def test_a_partition_is_known_up_to_what_was_read(
    next_offset: int | None,
    appended_until: datetime | None,
    bounds: Bounds,
    known: datetime | None,
) -> None:
    result = known_until(
        next_offset=next_offset, appended_until=appended_until, bounds=bounds, now=seconds(9)
    )
    assert result == known
