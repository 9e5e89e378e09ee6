import pytest

from tidemill.environments.loading import load_environment
from tidemill.errors import ConfigurationError

HERE = "tests.unit.tidemill.environments.test_loading"


class Whole:
    """As little as an environment has to have."""

    name = "whole"

    def tasks(self) -> None: ...

    def verify(self) -> None: ...


whole = Whole()
half = object()


@pytest.mark.parametrize("attribute", ["whole", "Whole"])
def test_an_object_or_its_class_is_found(attribute: str) -> None:
    assert load_environment(f"{HERE}:{attribute}").name == "whole"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (None, "no environment is set"),
        ("no.colon", "not `package.module:attribute`"),
        (":attribute", "not `package.module:attribute`"),
        ("no_such_package:x", "cannot be loaded"),
        (f"{HERE}:absent", "cannot be loaded"),
        (f"{HERE}:half", "lacks name, tasks, verify"),
    ],
)
def test_what_is_wrong_is_said(path: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_environment(path)
