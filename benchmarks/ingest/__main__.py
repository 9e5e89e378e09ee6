"""Measure ingest: `python -m benchmarks.ingest [--quick] [--only api] [--column embedded]`."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Literal

from benchmarks.facts import measured_commit
from benchmarks.figures import Target, judge
from benchmarks.harness import RESULTS, Rounds, show, write_result
from benchmarks.ingest.api import FULL, QUICK, ApiPart
from benchmarks.ingest.column import Column, running_servers
from examples.servers.starting import ServerError

_PARTS = ("api",)
_UNMEASURED: tuple[tuple[str, float, Literal["least", "most"]], ...] = (
    ("embedded/mlflow/ratio", 20, "least"),
    ("kafka/mlflow/ratio", 20, "least"),
    ("embedded/join/events_per_s", 20_000, "least"),
    ("kafka/join/events_per_s", 12_000, "least"),
    ("growth/memory/change", 0.10, "most"),
    ("growth/cost/change", 0.15, "most"),
    ("embedded/freshness/p50_ms", 20, "most"),
    ("embedded/freshness/p99_ms", 100, "most"),
    ("kafka/freshness/p50_ms", 20, "most"),
    ("kafka/freshness/p99_ms", 100, "most"),
)
"""What no part here measures yet: in every result as missed, so that none looks complete."""


def main() -> int:
    """Return 0 when everything was measured, 2 when a server is missing; targets decide nothing."""
    asked = _arguments()
    mode = "quick" if asked.quick else "full"
    commit = measured_commit()
    is_whole = asked.only is None and asked.column is None
    is_resumed = is_whole and not asked.quick
    kept = RESULTS / (".ingest.json" if is_resumed else ".ingest-once.json")
    if not is_resumed:
        # Whoever asks for a short look again wants to see it measured again.
        kept.unlink(missing_ok=True)
    rounds = Rounds(kept, commit)
    figures: dict[str, object] = {"mode": mode, "worker_beside_api": False}
    targets: list[Target] = []
    for column in Column if asked.column is None else (Column(asked.column),):
        part = ApiPart(column, QUICK if asked.quick else FULL, rounds)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder,
                running_servers(column, Path(folder)) as servers,
            ):
                part.measure(servers)
        except ServerError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        figures |= part.figures()
        targets += part.targets()
    targets += _unmeasured()
    show(f"ingest, {mode}", figures, targets)
    if is_whole:
        name = "ingest-quick" if asked.quick else "ingest"
        path = RESULTS / f"{name}.json"
        write_result(path, name=name, commit=commit, figures=figures, targets=targets)
    rounds.forget()
    return 0


def _unmeasured() -> list[Target]:
    return [judge(name, None, bound, side=side) for name, bound, side in _UNMEASURED]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest")
    parser.add_argument("--quick", action="store_true", help="short: figures say little")
    parser.add_argument("--only", choices=_PARTS, help="one part; writes no result file")
    parser.add_argument("--column", choices=[one.value for one in Column], help="one column alone")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
