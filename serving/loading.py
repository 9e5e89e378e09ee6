"""From a version's name to a model that may serve: digests first, then probes, on this replica."""

import logging
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from tidemill.errors import SnapshotCorruptError
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.snapshots.policies import check_base
from tidemill.snapshots.probes import check_probes
from tidemill.snapshots.store import SnapshotStore

_log = logging.getLogger(__name__)


class VersionRecord(Protocol):
    """What the registry knows of a version."""

    @property
    def version(self) -> str:
        """Its name."""
        ...

    @property
    def digest(self) -> str:
        """Whole digest of its content."""
        ...

    @property
    def base_digest(self) -> str:
        """Digest of the base it belongs to."""
        ...

    @property
    def snapshot(self) -> str | None:
        """Folder in the snapshot store; None = the base itself."""
        ...


@dataclass(frozen=True, slots=True)
class VersionLoader:
    """Loads versions of one base."""

    base: BaseModel
    store: SnapshotStore

    def load(self, record: VersionRecord) -> nn.Module:
        """Return the version's model.

        Raises:
            SnapshotError: a file is missing, a digest differs, or the weights do not give the
                log-probs that the manifest promises; this version must not serve.
        """
        self._check_base(record)
        if record.snapshot is None:
            # The base's own tensors were digested when it was loaded.
            return load_adapter(self.base, None)
        snapshot = self.store.load(record.snapshot)
        if snapshot.manifest.digest != record.digest:
            raise SnapshotCorruptError(
                f"{record.version}: the manifest's digest is {snapshot.manifest.digest:.12}, the "
                f"registry says {record.digest:.12}; restore the folder in the snapshot store"
            )
        check_base(snapshot.manifest, self.base)
        model = load_adapter(self.base, snapshot)
        difference = check_probes(model, snapshot.manifest)
        _log.info("%s verified; probes differ by at most %.1e", record.version, difference)
        return model

    def _check_base(self, record: VersionRecord) -> None:
        if record.base_digest != self.base.digest:
            raise SnapshotCorruptError(
                f"{record.version} belongs to base {record.base_digest:.12}, this replica holds "
                f"{self.base.digest:.12}; point policy.base at the right folder"
            )
