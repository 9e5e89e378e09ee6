"""What a result says of itself: the commit that was measured, and the machine."""

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured and where, as it is when a run starts."""

    commit: str
    machine: dict[str, str | int | float]


def observe() -> Subject:
    """Look at the working tree and at the machine; before anything is measured.

    Afterwards the load would be the benchmark's own.
    """
    return Subject(measured_commit(), machine())


def measured_commit() -> str:
    """Return the commit of the working tree, with `-dirty` where files differ from it.

    Result files do not count: a run writes them.
    """
    commit = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return f"{commit}-dirty" if changed else commit


def machine() -> dict[str, str | int | float]:
    """Return what the figures depend on; the load average is of the last minute."""
    return {
        "cores": os.cpu_count() or 0,
        "processor": _processor(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603  the arguments are ours
        ["git", *arguments],  # noqa: S607  found on PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or "unknown"
