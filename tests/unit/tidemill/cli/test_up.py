import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tidemill.cli.up import _say

ROOT = Path(__file__).parents[4]


def test_the_feedback_port_is_looked_for_at_the_feedback_host(tmp_path: Path) -> None:
    (tmp_path / "metrics.toml").write_text('[metrics.ok]\ntype = "bool"\nwindow_s = 1.0\n')
    (tmp_path / "tidemill.toml").write_text('[ingest]\nhost = "127.0.0.2"\n')
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # In a process of its own, since a failure of this test would start every part.
        done = subprocess.run(
            [sys.executable, "-m", "tidemill.cli.main", "up", "--port", str(port - 1)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert f"port {port} on 127.0.0.2 cannot be used" in done.stderr


def test_words_that_cannot_be_written_end_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(sys, "stdout", _Unbuffered(full.fileno()))
        _say("learner: started")
        monkeypatch.undo()


class _Unbuffered:
    """Text straight to a file; nothing is left to fail when it closes."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def write(self, text: str) -> int:
        return os.write(self.handle, text.encode())

    def flush(self) -> None: ...
