import math

import pytest

from tidemill.client import FeedbackClient, Options
from tidemill.errors import ConfigurationError


@pytest.mark.parametrize(
    "over",
    [
        {"timeout_s": 0},
        {"timeout_s": math.inf},
        {"backoff_first_s": -1},
        {"backoff_max_s": math.nan},
        {"attempts": 0},
        {"max_batch_items": 0},
        {"max_queued": 0},
        {"max_queued_bytes": 10},
    ],
)
def test_numbers_have_bounds(over) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(over))):
        Options(**over)


@pytest.mark.parametrize("url", ["", "127.0.0.1:8001", "ftp://host", "http://", "http://[::1"])
def test_an_address_must_be_one_of_http(url) -> None:
    with pytest.raises(ConfigurationError, match="base_url"):
        FeedbackClient(url)


@pytest.mark.parametrize("key", ["", "tdm_a b", "tdm_a\n", "tdm_\u00e4"])
def test_a_key_that_no_header_may_hold_is_refused_and_not_shown(key) -> None:
    with pytest.raises(ConfigurationError, match="the key") as caught:
        FeedbackClient("http://127.0.0.1:1", key)
    assert "tdm_a" not in str(caught.value)
