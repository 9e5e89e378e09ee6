"""Measure ingest: `python -m benchmarks.ingest [--quick] [--only api] [--column embedded]`."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.facts import observe
from benchmarks.figures import Target
from benchmarks.harness import RESULTS, Rounds, show, write_result
from benchmarks.ingest.column import Column, running_servers
from benchmarks.ingest.parts import FULL, QUICK, Build, unmeasured
from examples.servers.starting import ServerError


def main() -> int:
    """Return 0 when everything was measured, 2 when a server is missing; targets decide nothing."""
    asked = _arguments()
    mode = "quick" if asked.quick else "full"
    subject = observe()
    is_whole = asked.only is None and asked.column is None
    is_resumed = is_whole and not asked.quick
    kept = RESULTS / (".ingest.json" if is_resumed else ".ingest-once.json")
    if not is_resumed:
        # Whoever asks for a short look again wants to see it measured again.
        kept.unlink(missing_ok=True)
    rounds = Rounds(kept, subject.commit)
    figures: dict[str, object] = {"mode": mode}
    targets: list[Target] = []
    parts = QUICK if asked.quick else FULL
    builds = list(parts.values()) if asked.only is None else [parts[asked.only]]
    for column in Column if asked.column is None else (Column(asked.column),):
        try:
            found, bars = _measure(builds, column, rounds)
        except ServerError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        figures |= found
        targets += bars
        if is_whole:
            targets += unmeasured(column, is_quick=asked.quick)
    show(f"ingest, {mode}", figures, targets)
    if is_whole:
        name = "ingest-quick" if asked.quick else "ingest"
        path = RESULTS / f"{name}.json"
        write_result(path, name=name, subject=subject, figures=figures, targets=targets)
    rounds.forget()
    return 0


def _measure(
    builds: Sequence[Build], column: Column, rounds: Rounds
) -> tuple[dict[str, object], list[Target]]:
    figures: dict[str, object] = {}
    targets: list[Target] = []
    with (
        tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder,
        running_servers(column, Path(folder)) as servers,
    ):
        for build in builds:
            part = build(column, rounds)
            part.measure(servers)
            figures |= part.figures()
            targets += part.targets()
    return figures, targets


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest")
    parser.add_argument("--quick", action="store_true", help="short: figures say little")
    parser.add_argument("--only", choices=FULL, help="one part; writes no result file")
    parser.add_argument("--column", choices=[one.value for one in Column], help="one column alone")
    asked = parser.parse_args()
    if asked.quick and asked.only not in {None, *QUICK}:
        parser.error(f"--only {asked.only} has no short form; leave --quick out")
    return asked


if __name__ == "__main__":
    sys.exit(main())
