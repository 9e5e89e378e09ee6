from importlib.metadata import EntryPoint

import pytest

from tests.factories import make_interaction
from tidemill.contracts.events import InteractionServed
from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics_file import parse_metrics
from tidemill.rewards.verifiers import GROUP, load_verifiers, run_verifiers

SPEC = parse_metrics(
    """
    [metrics.accepted]
    type = "bool"
    window_s = 60
    [verifiers.short]
    plugin = "short"
    """
)


def is_short(interaction: InteractionServed) -> float:
    return float(len(interaction.completion_ids) < 10)


def breaks(interaction: InteractionServed) -> float:
    raise RuntimeError(interaction.interaction_id)


def entry_point(value: str) -> EntryPoint:
    return EntryPoint("short", f"{__name__}:{value}", GROUP)


def test_a_declared_plugin_is_found_by_its_name() -> None:
    verifiers = load_verifiers(SPEC, [entry_point("is_short")])
    assert run_verifiers(verifiers, make_interaction()) == {"short": 1.0}


def test_a_plugin_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"verifiers.short: no plugin 'short'"):
        load_verifiers(SPEC, [])
    with pytest.raises(ConfigurationError, match="no plugin"):
        load_verifiers(SPEC)


@pytest.mark.parametrize("value", ["nothing_here", "is_short.nothing"])
def test_a_plugin_that_cannot_be_loaded_is_named(value: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot load"):
        load_verifiers(SPEC, [entry_point(value)])


@pytest.mark.parametrize("verify", [breaks, lambda _: 1.5, lambda _: float("nan")])
def test_a_failure_is_no_score_and_never_a_zero(verify: object) -> None:
    assert run_verifiers({"short": verify}, make_interaction()) is None  # type: ignore[dict-item]
