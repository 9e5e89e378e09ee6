"""What is measured by a process of its own: asked as JSON, answered as JSON."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from benchmarks.facts import ROOT

A = TypeVar("A", bound=BaseModel)


def ask(module: str, asked: BaseModel, kind: type[A], *, timeout_s: float) -> A:
    """Run a module and return what it prints.

    Raises:
        subprocess.SubprocessError: it failed, or took longer.
    """
    done = subprocess.run(  # noqa: S603  the command is ours
        [sys.executable, "-m", module, asked.model_dump_json()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout_s,
    )
    return kind.model_validate_json(done.stdout)


@contextmanager
def running_apart(module: str, asked: BaseModel) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module that reads what it is asked, and go on beside it; its answer is its stdout."""
    process = subprocess.Popen(  # noqa: S603  the command is ours
        [sys.executable, "-m", module], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            if process.stdin is not None:
                process.stdin.write(asked.model_dump_json().encode())
                process.stdin.close()
            yield process
        except BaseException:
            process.kill()
            raise
