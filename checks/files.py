"""Which files there are to check."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tidemill", "ingest", "learner", "serving", "gating", "migrations")
_CODE = (*PACKAGES, "examples", "benchmarks", "checks", "tests")


def python_files(*folders: str) -> list[Path]:
    """Return the Python files of some folders (all code when none is named), by path."""
    return sorted(file for folder in folders or _CODE for file in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    """Return a path as a person writes it."""
    return path.relative_to(ROOT).as_posix()
