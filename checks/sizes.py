"""Limits of files and functions, so that every file stays one or two screens of reading."""

import ast
from collections.abc import Iterator
from pathlib import Path

from checks.files import ROOT, python_files, relative

MAX_FILE_LINES = 350
MAX_TEST_FILE_LINES = 450
MAX_WORKER_LINES = 160
"""A stage's `worker.py` is the page that a newcomer reads first."""
MAX_FUNCTION_LINES = 60
MAX_DEPTH = 3
"""Levels of if, for, while, try and match inside a function; `with` neither branches nor loops."""
FORBIDDEN_NAMES = ("utils", "common", "helpers", "misc", "manager", "logging")

_NESTING = (ast.If, ast.For, ast.While, ast.Try, ast.Match, ast.AsyncFor)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_problems() -> list[str]:
    """Return what is over a limit."""
    return [problem for path in python_files() for problem in check_file(path)]


def check_file(path: Path) -> list[str]:
    """Return what is over a limit in one file."""
    source = path.read_text(encoding="utf-8")
    name = relative(path)
    problems = []
    limit = _file_limit(path, name)
    lines = len(source.splitlines())
    if lines > limit:
        problems.append(f"{name}: {lines} lines, at most {limit}")
    if path.stem in FORBIDDEN_NAMES:
        problems.append(f"{name}: the name says nothing; name the file after what it owns")
    for function in functions_of(ast.parse(source)):
        where = f"{name}:{function.lineno} {function.name}"
        problems.extend(f"{where}: {problem}" for problem in check_function(function))
    return problems


def functions_of(tree: ast.AST) -> Iterator[_Function]:
    """Yield every function, inner ones too."""
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            yield node


def check_function(function: _Function) -> list[str]:
    """Return what is over a limit in one function."""
    problems = []
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if lines > MAX_FUNCTION_LINES:
        problems.append(f"{lines} lines, at most {MAX_FUNCTION_LINES}")
    depth = _depth(function.body)
    if depth > MAX_DEPTH:
        problems.append(f"nested {depth} deep, at most {MAX_DEPTH}; return early")
    return problems


def _file_limit(path: Path, name: str) -> int:
    if name.startswith("tests/"):
        return MAX_TEST_FILE_LINES
    is_stage = path.name == "worker.py" and path.parent.parent == ROOT
    return MAX_WORKER_LINES if is_stage else MAX_FILE_LINES


def _depth(body: list[ast.stmt]) -> int:
    return max((_depth_of(statement) for statement in body), default=0)


def _depth_of(statement: ast.stmt) -> int:
    if isinstance(statement, _Function | ast.ClassDef):
        return 0
    inner = max((_depth(block) for block in _blocks(statement)), default=0)
    # An `elif` is an `if` inside `else` to the parser, but no step deeper to a reader.
    chained = max((_depth_of(chain) for chain in _chains(statement)), default=0)
    return max(inner + isinstance(statement, _NESTING), chained)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if block and not (name == "orelse" and list(_chains(statement))):
            yield block
    for holder in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield holder.body


def _chains(statement: ast.stmt) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.If) and len(statement.orelse) == 1:
        only = statement.orelse[0]
        if isinstance(only, ast.If):
            yield only
