"""Learner processes that tests can kill: forked from one that has its imports done.

Run as `python -m tests.invariants.learner_processes`; each line on standard input is the JSON of a
run's settings, each line on standard output the new process's id.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

REPOSITORY = Path(__file__).parents[2]


@dataclass(slots=True)
class LearnerProcesses:
    """Starts learners; use as a context manager."""

    _parent: subprocess.Popen[str] | None = None

    def __enter__(self) -> "LearnerProcesses":
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.invariants.learner_processes"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._parent is not None
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(30)
        self._parent.stdout.close()

    def start(self, shared: dict[str, Any], learner: dict[str, Any]) -> int:
        """Start a learner and return its process id."""
        return int(self._ask({"do": "start", "shared": shared, "learner": learner}))

    def wait(self, pid: int) -> int:
        """Wait for a learner's end; return its exit code, negative = the signal."""
        return int(self._ask({"do": "wait", "pid": pid}))

    def kill(self, pid: int) -> None:
        """kill -9."""
        os.kill(pid, signal.SIGKILL)
        assert self.wait(pid) == -signal.SIGKILL

    def stop(self, pid: int) -> None:
        """Ask a learner to end, and make sure that it does so in good order."""
        os.kill(pid, signal.SIGTERM)
        assert self.wait(pid) == 0

    def _ask(self, question: dict[str, Any]) -> str:
        assert self._parent is not None
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps(question) + "\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline()


def wait_until(is_true: Callable[[], bool], *, timeout_s: float = 60.0) -> None:
    """Look again and again; fail after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "not reached in time"
        time.sleep(0.02)


def _serve() -> None:
    import torch

    import learner.worker
    from learner.settings import LearnerSettings
    from tidemill.settings import SharedSettings

    torch.set_num_threads(1)
    for line in sys.stdin:
        question = json.loads(line)
        if question["do"] == "wait":
            _, status = os.waitpid(question["pid"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                shared = SharedSettings.model_validate(question["shared"])
                settings = LearnerSettings.model_validate(question["learner"])
                # Not sys.exit: nothing of the parent may run at the child's end.
                os._exit(learner.worker.run(shared, settings))
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
