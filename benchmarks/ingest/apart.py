"""What is measured by a process of its own: asked as JSON, answered as JSON."""

import subprocess
import sys
from typing import TypeVar

from pydantic import BaseModel

from benchmarks.facts import ROOT

A = TypeVar("A", bound=BaseModel)


def command_of(module: str, asked: BaseModel) -> list[str]:
    """Return how to run a module on what it is asked."""
    return [sys.executable, "-m", module, asked.model_dump_json()]


def ask(module: str, asked: BaseModel, kind: type[A], *, timeout_s: float) -> A:
    """Run a module and return what it prints.

    Raises:
        subprocess.SubprocessError: it failed, or took longer.
    """
    done = subprocess.run(  # noqa: S603  the command is ours
        command_of(module, asked),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=timeout_s,
    )
    return kind.model_validate_json(done.stdout)
