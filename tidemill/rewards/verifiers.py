"""Verifiers: deterministic plugins that score an interaction without asking anybody.

A plugin is an entry point in the group `tidemill.verifiers`; it is code that the operator
installed and named in the metrics file, never something that an event brings along.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points

from tidemill.contracts.events import InteractionServed
from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics import MetricsFile

_log = logging.getLogger(__name__)

GROUP = "tidemill.verifiers"

Verifier = Callable[[InteractionServed], float]
"""Returns a score in [0, 1]; equal interactions get equal scores."""


def load_verifiers(
    spec: MetricsFile, installed: Iterable[EntryPoint] | None = None
) -> dict[str, Verifier]:
    """Return the plugin of each declared verifier.

    Raises:
        ConfigurationError: a plugin is not installed or cannot be loaded.
    """
    found = entry_points(group=GROUP) if installed is None else installed
    by_name = {point.name: point for point in found}
    verifiers: dict[str, Verifier] = {}
    for name, verifier in spec.verifiers.items():
        point = by_name.get(verifier.plugin)
        if point is None:
            raise ConfigurationError(
                f"verifiers.{name}: no plugin {verifier.plugin!r} in the group {GROUP}; "
                f"installed: {', '.join(sorted(by_name)) or 'none'}"
            )
        try:
            verifiers[name] = point.load()
        except (ImportError, AttributeError) as error:
            raise ConfigurationError(
                f"verifiers.{name}: cannot load {point.value!r}: {error}"
            ) from error
    return verifiers


def run_verifiers(
    verifiers: Mapping[str, Verifier], interaction: InteractionServed
) -> dict[str, float] | None:
    """Return the score of each verifier; None = one failed, which is never a 0."""
    scores: dict[str, float] = {}
    for name, verify in verifiers.items():
        try:
            score = float(verify(interaction))
        except Exception:
            _log.exception("verifier %s failed on %s", name, interaction.interaction_id)
            return None
        if not (math.isfinite(score) and 0 <= score <= 1):
            _log.error("verifier %s gave %r, outside 0 to 1", name, score)
            return None
        scores[name] = score
    return scores
