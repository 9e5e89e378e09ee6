"""Figures of one replica in Prometheus' text form. Pure."""

from collections.abc import Mapping

_PREFIX = "tidemill_serving_"


def render_metrics(figures: Mapping[str, float]) -> str:
    """Return one line for each figure; names that end in `_total` are counters."""
    lines = []
    for name, value in figures.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {_PREFIX}{name} {kind}", f"{_PREFIX}{name} {value:g}"]
    return "\n".join(lines) + "\n"
