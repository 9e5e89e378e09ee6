"""Pure files are covered to the last line; the total is held by pytest-cov itself.

Quiet when all is well, so that pytest's own closing line stays the last.
"""

import json
import sys
from pathlib import Path

from checks.files import relative
from checks.pure import find_pure_files


def find_problems(report: Path) -> list[str]:
    """Return the uncovered lines of pure files in coverage's JSON report."""
    files = json.loads(report.read_text(encoding="utf-8"))["files"]
    problems = []
    for name in map(relative, find_pure_files()):
        missing = files[name]["missing_lines"] if name in files else ["all"]
        if missing:
            lines = ", ".join(map(str, missing))
            problems.append(f"{name}: a pure file, but no test runs line {lines}")
    return problems


if __name__ == "__main__":
    found = find_problems(Path(sys.argv[1]))
    for problem in found:
        print(problem)  # noqa: T201  this is its purpose
    sys.exit(1 if found else 0)
