import os
import signal
import subprocess
import sys
import time

_DEAF = """
import threading
from tidemill.process import configure_logging, stop_on_signal
configure_logging("deaf")
stop = stop_on_signal(force_after_s={force})
print("up", flush=True)
stop.wait()
threading.Event().wait({busy})
"""


def _end(force: str, busy: str) -> tuple[int, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _DEAF.format(force=force, busy=busy)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TIDEMILL_LOG_LEVEL": "ERROR"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGTERM)
    _, complaints = process.communicate(timeout=30)
    return process.returncode, complaints


def test_a_part_that_does_not_end_by_itself_is_ended() -> None:
    code, complaints = _end("0.2", "600")
    assert code == 1
    assert "not done 0.2 s after the signal to stop" in complaints


def test_a_part_that_ends_in_time_is_left_alone() -> None:
    started = time.monotonic()
    assert _end("600", "0.01") == (0, "")
    assert time.monotonic() - started < 300


def test_without_a_limit_a_part_takes_its_time() -> None:
    assert _end("None", "0.3") == (0, "")
