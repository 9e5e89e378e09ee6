"""The snapshot store: a folder of immutable policy versions.

    <root>/<version>/adapter_model.safetensors   peft's names, so other engines load it as it is
    <root>/<version>/adapter_config.json
    <root>/<version>/manifest.json               written last

A version is written aside, fsynced and renamed: it is there whole or not at all. Only safetensors
and JSON are read, only those three files, never through a symbolic link. The base itself (v0) has
no snapshot: its version is `base_version(base)`.
"""

import hashlib
import json
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors
from torch import Tensor

from tidemill.contracts.ids import PolicyVersion
from tidemill.durable import sync_path
from tidemill.errors import NonFiniteError, SnapshotCorruptError, SnapshotError
from tidemill.settings import LoraSettings
from tidemill.snapshots.digests import tensor_digest
from tidemill.snapshots.manifest import Manifest, SnapshotDraft, TensorEntry, content_digest

TENSORS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
MANIFEST_FILE = "manifest.json"
_FILES = {TENSORS_FILE, CONFIG_FILE, MANIFEST_FILE}
_MAX_JSON_BYTES = 8 * 2**20
_MAX_HEADER_BYTES = 8 * 2**20
"""What a safetensors file may have beside its tensors."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A verified version in memory."""

    manifest: Manifest
    tensors: dict[str, Tensor]

    @property
    def lora(self) -> LoraSettings:
        """Rank, alpha, target modules."""
        return self.manifest.lora


@dataclass(frozen=True, slots=True)
class SnapshotStore:
    """Versions under one folder; safe to share between processes."""

    root: Path

    def write(self, tensors: dict[str, Tensor], draft: SnapshotDraft) -> Manifest:
        """Store a version durably and return its manifest (with `version` and `digest`).

        Writing the same content again changes nothing.

        Raises:
            NonFiniteError: a tensor holds NaN or infinity.
            SnapshotError: the disk refused.
        """
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise NonFiniteError(f"{name} holds NaN or infinity; this version is not written")
        config = _config_bytes(draft.lora)
        manifest = _build_manifest(tensors, draft, config)
        contents = {
            TENSORS_FILE: save_safetensors(tensors, metadata={"format": "pt"}),
            CONFIG_FILE: config,
            MANIFEST_FILE: _pretty(manifest.model_dump(mode="json")),
        }
        try:
            self._put(manifest.version, contents)
        except OSError as error:
            raise SnapshotError(f"{manifest.version} cannot be written: {error}") from error
        return manifest

    def load(self, version: str) -> Snapshot:
        """Read a version and check every digest.

        Raises:
            SnapshotError: there is no such version.
            SnapshotCorruptError: it is not what was written; never serve it.
        """
        folder = self._folder(version)
        manifest = _read_manifest(folder, version)
        if hashlib.sha256(_read(folder, CONFIG_FILE)).hexdigest() != manifest.config_digest:
            raise SnapshotCorruptError(f"{version}: {CONFIG_FILE} differs from the manifest")
        data = _read(folder, TENSORS_FILE, limit=manifest.num_bytes + _MAX_HEADER_BYTES)
        try:
            tensors = load_safetensors(data)
        except (SafetensorError, ValueError, KeyError) as error:
            raise SnapshotCorruptError(f"{version}: {TENSORS_FILE} cannot be read: {error}") from (
                error
            )
        _check_tensors(tensors, manifest)
        return Snapshot(manifest, tensors)

    def verify(self, version: str) -> Manifest:
        """Check every digest of a version and return its manifest; raises as `load` does."""
        return self.load(version).manifest

    def versions(self) -> list[str]:
        """Return the versions stored here, oldest number first."""
        if not self.root.is_dir():
            return []
        found = []
        for entry in self.root.iterdir():
            if not entry.name.startswith("."):
                try:
                    found.append(PolicyVersion.parse(entry.name))
                except ValueError:
                    continue
        return [str(version) for version in sorted(found)]

    def _folder(self, version: str) -> Path:
        try:
            folder = self.root / str(PolicyVersion.parse(version))
        except ValueError as error:
            raise SnapshotError(str(error)) from error
        if not folder.is_symlink() and not folder.exists():
            raise SnapshotError(f"{version} is not in {self.root}; it was removed or never written")
        if folder.is_symlink() or not folder.is_dir():
            raise SnapshotCorruptError(f"{folder} is no folder of its own; it is not read")
        odd = sorted(entry.name for entry in folder.iterdir() if entry.name not in _FILES)
        if odd:
            raise SnapshotCorruptError(f"{version} holds a file that no writer makes: {odd[0]!r}")
        return folder

    def _put(self, version: str, contents: dict[str, bytes]) -> None:
        target = self.root / version
        if target.exists():
            self.verify(version)
            return
        aside = self.root / f".new-{version}"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        for name, data in contents.items():
            _write_durably(aside / name, data)
        sync_path(aside)
        aside.rename(target)
        sync_path(self.root)


def _build_manifest(tensors: dict[str, Tensor], draft: SnapshotDraft, config: bytes) -> Manifest:
    entries = {
        name: TensorEntry(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            digest=tensor_digest(tensor),
        )
        for name, tensor in tensors.items()
    }
    unsealed = Manifest(
        **{name: getattr(draft, name) for name in SnapshotDraft.model_fields},
        tensors=entries,
        config_digest=hashlib.sha256(config).hexdigest(),
        digest="0" * 64,
    )
    digest = content_digest(unsealed.model_dump(mode="json"))
    return unsealed.model_copy(update={"digest": digest})


def _read_manifest(folder: Path, version: str) -> Manifest:
    data = _read(folder, MANIFEST_FILE)
    try:
        manifest = Manifest.model_validate_json(data)
        digest = content_digest(json.loads(data))
    except (ValidationError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0]
        raise SnapshotCorruptError(f"{version}: {MANIFEST_FILE} is not valid: {first}") from error
    if digest != manifest.digest or manifest.version != version:
        raise SnapshotCorruptError(
            f"{version}: the manifest's content has digest {digest:.12}, it says "
            f"{manifest.digest:.12}; restore the folder from a copy"
        )
    return manifest


def _check_tensors(tensors: dict[str, Tensor], manifest: Manifest) -> None:
    if tensors.keys() != manifest.tensors.keys():
        odd = sorted(tensors.keys() ^ manifest.tensors.keys())
        raise SnapshotCorruptError(
            f"{manifest.version}: {len(odd)} tensors are not those of the manifest, first {odd[0]}"
        )
    for name, entry in manifest.tensors.items():
        tensor = tensors[name]
        found = (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        if found != (entry.dtype, entry.shape):
            raise SnapshotCorruptError(
                f"{manifest.version}: {name} is {found}, the manifest says "
                f"{(entry.dtype, entry.shape)}"
            )
        if tensor_digest(tensor) != entry.digest:
            raise SnapshotCorruptError(
                f"{manifest.version}: the digest of {name} differs; restore the folder from a copy"
            )


def _read(folder: Path, name: str, *, limit: int = _MAX_JSON_BYTES) -> bytes:
    """Return a plain file's bytes: no link, no device, no more than the limit."""
    try:
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise SnapshotCorruptError(f"{folder / name} cannot be read: {error}") from error
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            raise SnapshotCorruptError(f"{folder / name} is no plain file of at most {limit} bytes")
        return file.read(limit)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _config_bytes(lora: LoraSettings) -> bytes:
    """Return peft's `adapter_config.json`."""
    targets = lora.target_modules
    return _pretty(
        {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "r": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": targets if isinstance(targets, str) else list(targets),
            "inference_mode": True,
            "base_model_name_or_path": None,
        }
    )


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
