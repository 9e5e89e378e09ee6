"""Figures of the feedback API in Prometheus' text form. Pure."""

from collections.abc import Iterable, Mapping

from tidemill.storage.ledger_groups import StateCount

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "tidemill_ingest_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render_figures(
    *, states: Iterable[StateCount], answered: Mapping[str, int], in_flight: int
) -> str:
    """Return the figures; names that end in `_total` are counters.

    Args:
        states: of the caller's tenant, by tenant.
        answered: records that this process answered, by what was answered.
        in_flight: records on their way into the log.
    """
    by_kind: dict[str, list[StateCount]] = {"interactions": [], "feedback": [], "dead_letters": []}
    for one in states:
        by_kind.setdefault(one.kind, []).append(one)
    lines: list[str] = []
    for kind, counts in by_kind.items():
        lines.append(f"# TYPE {_PREFIX}ledger_{kind} gauge")
        lines += [
            _line(f"ledger_{kind}", {"tenant": one.tenant or "", "state": one.state}, one.number)
            for one in counts
        ]
    lines.append(f"# TYPE {_PREFIX}answered_total counter")
    lines += [
        _line("answered_total", {"status": status}, number)
        for status, number in sorted(answered.items())
    ]
    lines.append(f"# TYPE {_PREFIX}in_flight gauge")
    lines.append(_line("in_flight", {}, in_flight))
    return "\n".join(lines) + "\n"


def _line(name: str, labels: Mapping[str, str], number: int) -> str:
    told = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in labels.items())
    return f"{_PREFIX}{name}{{{told}}} {number}" if told else f"{_PREFIX}{name} {number}"
