"""Run every check, print each problem, and exit 1 when there is one."""

import sys

from checks import links, pure, schema, sizes


def main() -> int:
    """Return the exit code."""
    problems = [
        problem for check in (sizes, pure, links, schema) for problem in check.find_problems()
    ]
    for problem in problems:
        print(problem)  # noqa: T201  this is its purpose
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
