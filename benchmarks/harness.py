"""What every benchmark needs: rounds that survive a stop, the result file, and the table."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from benchmarks.facts import ROOT, Subject
from benchmarks.figures import Target

RESULTS = ROOT / "benchmarks" / "results"

F = TypeVar("F", bound=BaseModel)


class Rounds:
    """Measured rounds, written down one by one, so that a stopped run goes on where it was.

    A round counts only for the commit that it measured; a working tree with changes has no name
    that would tell its rounds from those of other changes, so nothing of it is taken up again.
    """

    def __init__(self, path: Path, commit: str) -> None:
        """Take up what an earlier run of the same commit left in a file."""
        self._path = path
        self._commit = commit
        self._kept: dict[str, Any] = {}
        if path.exists() and not commit.endswith("-dirty"):
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["commit"] == commit:
                self._kept = document["rounds"]

    def measure(self, key: str, kind: type[F], run: Callable[[], F]) -> F:
        """Return what is kept under a key; measure it and keep it where nothing is."""
        if key not in self._kept:
            self._kept[key] = run().model_dump()
            document = {"commit": self._commit, "rounds": self._kept}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            aside = self._path.with_suffix(".new")
            aside.write_text(json.dumps(document), encoding="utf-8")
            aside.replace(self._path)
        return self.kept(key, kind)

    def kept(self, key: str, kind: type[F]) -> F:
        """Return what is kept under a key.

        Raises:
            KeyError: nothing is.
        """
        return kind.model_validate(self._kept[key])

    def has(self, key: str) -> bool:
        """Tell whether a round is kept already."""
        return key in self._kept

    def forget(self) -> None:
        """Remove the file: the run is complete."""
        self._path.unlink(missing_ok=True)


def write_result(
    path: Path,
    *,
    name: str,
    subject: Subject,
    figures: Mapping[str, Any],
    targets: Sequence[Target],
) -> None:
    """Write a result file."""
    document = {
        "name": name,
        "commit": subject.commit,
        "machine": subject.machine,
        "figures": figures,
        "targets": [target.model_dump() for target in targets],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def show(title: str, figures: Mapping[str, Any], targets: Sequence[Target]) -> None:
    """Print figures and targets."""
    table = Table("figure", "value", title=title)
    for name, value in figures.items():
        table.add_row(name, _text(value))
    bars = Table("target", "value", "bar", "met")
    for one in targets:
        bars.add_row(one.name, _text(one.value), _text(one.target), "yes" if one.met else "NO")
    console = Console()
    console.print(table)
    console.print(bars)


def _text(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"
