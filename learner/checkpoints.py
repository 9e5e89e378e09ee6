"""Checkpoints: one safetensors file each, tensors in its body, the state as JSON in its header.

Written aside, fsynced, renamed, folder fsynced; the name holds the digest, so two writers of one
serial cannot overwrite each other. SQL names the one that counts. No pickle.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from learner.state import LearnerState, decode_state, encode_state
from tidemill.durable import sync_path
from tidemill.errors import SnapshotCorruptError

_STATE = "state"


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """Name and digest of a durable checkpoint."""

    name: str
    digest: str


class CheckpointStore:
    """The checkpoints of one learner."""

    def __init__(self, root: Path, learner: str) -> None:
        self.folder = root / quote(learner, safe="")

    def save(self, tensors: dict[str, Tensor], state: LearnerState) -> SavedCheckpoint:
        """Write a checkpoint; it is durable when this returns."""
        body = save(tensors, metadata={_STATE: encode_state(state)})
        digest = hashlib.sha256(body).hexdigest()
        name = f"{state.serial:012d}-{digest[:12]}.safetensors"
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / f".{name}.{os.getpid()}"
        with aside.open("wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.folder / name)
        sync_path(self.folder)
        return SavedCheckpoint(name, digest)

    def load(self, saved: SavedCheckpoint) -> tuple[dict[str, Tensor], LearnerState]:
        """Read a checkpoint back, bit for bit.

        Raises:
            SnapshotCorruptError: the file is missing, or is not the one that was recorded.
        """
        path = self.folder / saved.name
        try:
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != saved.digest:
                raise SnapshotCorruptError(
                    f"{path} has digest {found:.12}, the step recorded {saved.digest:.12}; restore "
                    "the file from a backup"
                )
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                tensors = {name: file.get_tensor(name) for name in names}
                return tensors, decode_state(file.metadata()[_STATE])
        except (OSError, SafetensorError) as error:
            raise SnapshotCorruptError(
                f"checkpoint {path} cannot be read: {error}; restore it from a backup"
            ) from error

    def prune(self, newest: SavedCheckpoint) -> None:
        """Remove what the newest recorded checkpoint makes superfluous, never a later one."""
        for path in self.folder.iterdir():
            is_older = _serial(path.name) <= _serial(newest.name)
            if is_older and path.name != newest.name:
                path.unlink(missing_ok=True)


def _serial(name: str) -> int:
    return int(name.lstrip(".").split("-", 1)[0])
