"""Pure files: mathematics and decisions. Their docstring says "Pure"; this holds them to it.

A pure file takes no settings, clock, logger or client, and every line of it is covered by tests.
"""

import ast
import re
from pathlib import Path

from checks.files import PACKAGES, python_files, relative

FORBIDDEN_IMPORTS = (
    "fastapi",
    "httpx",
    "kafka",
    "logging",
    "mlflow",
    "os",
    "pydantic_settings",
    "random",
    "socket",
    "sqlalchemy",
    "starlette",
    "subprocess",
    "threading",
    "time",
    "uvicorn",
    "tidemill.eventlog.embedded",
    "tidemill.eventlog.kafka",
    "tidemill.eventlog.opening",
    "tidemill.process",
    "tidemill.registry.registry",
    "tidemill.settings",
    "tidemill.storage.database",
    "tidemill.tracking",
)
_PURE = re.compile(r"\bPure\b")


def find_pure_files() -> list[Path]:
    """Return the files whose docstring says that they are pure."""
    return [path for path in python_files(*PACKAGES) if _PURE.search(_docstring(path))]


def find_problems() -> list[str]:
    """Return what pure files import and should not."""
    return [
        f"{relative(path)}: a pure file imports {name}"
        for path in find_pure_files()
        for name in _imports(path)
        if any(name == banned or name.startswith(f"{banned}.") for banned in FORBIDDEN_IMPORTS)
    ]


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
    return names
