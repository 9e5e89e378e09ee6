"""Links between the documents: every file and every heading that one names must exist."""

import re
from collections.abc import Iterator
from pathlib import Path

from checks.files import ROOT, relative

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+\s+(.+?)\s*$", re.MULTILINE)
_EXTERNAL = ("http://", "https://", "mailto:")


def find_problems() -> list[str]:
    """Return the links that lead nowhere."""
    return [problem for path in documents() for problem in check_document(path)]


def documents() -> list[Path]:
    """Return all Markdown files of the repository, by path."""
    folders = ("docs", "examples", "benchmarks")
    nested = [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *nested])


def check_document(path: Path) -> Iterator[str]:
    """Yield the dead links of one document."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in _LINK.findall(text):
        if target.startswith(_EXTERNAL):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"{relative(path)}: {target} does not exist"
        elif anchor and file.suffix == ".md" and anchor not in anchors_of(file):
            yield f"{relative(path)}: {target}: no such heading"


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
