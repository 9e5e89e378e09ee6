import pytest

from tidemill.settings import SharedSettings
from tidemill.tenants import check_tenant


@pytest.mark.parametrize("name", ["a", "Zo\u00eb & S\u00f6hne", "\U0001f600" * 128, "a\nb"])
def test_a_name_that_events_can_hold_is_taken(name: str) -> None:
    assert check_tenant(name) == name
    assert SharedSettings(tenant=name).tenant == name


@pytest.mark.parametrize("name", ["", "t" * 129, "a\0b", "\udcff"])
def test_a_name_that_no_event_can_hold_is_refused_in_settings_too(name: str) -> None:
    with pytest.raises(ValueError, match="give 1 to 128 characters of UTF-8, no NUL"):
        check_tenant(name)
    with pytest.raises(ValueError, match="tenant"):
        SharedSettings(tenant=name)
