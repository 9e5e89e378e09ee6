"""Durability of files: what a rename or a new file needs before it may be relied on."""

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Make a folder's entries, or a file's bytes, survive a loss of power.

    Raises:
        OSError: it cannot be opened or written out.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
