"""From a version's name to its model: digests first, then probes."""

from torch import nn

from tidemill.contracts.ids import PolicyVersion
from tidemill.errors import SnapshotCorruptError
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.snapshots.manifest import Manifest
from tidemill.snapshots.probes import check_probes
from tidemill.snapshots.store import SnapshotStore


def base_version(base: BaseModel) -> str:
    """Return the version text of the base alone: number 0, the base's own digest."""
    return str(PolicyVersion.of(0, base.digest))


def load_policy(
    base: BaseModel, store: SnapshotStore, version: str, *, trainable: bool = False
) -> nn.Module:
    """Return a version's model, verified; `trainable` gives peft's, else the lean one.

    `base_version(base)` gives the base alone: it has no adapter that could be trained.

    Raises:
        SnapshotError: there is no such version.
        SnapshotCorruptError: a digest differs, or the version belongs to another base.
        ProbeFailedError: the weights do not give the log-probs that the manifest promises.
    """
    if version == base_version(base):
        if trainable:
            raise ValueError(f"{version} is the base alone; attach an adapter to train one")
        return load_adapter(base, None)
    snapshot = store.load(version)
    check_base(snapshot.manifest, base)
    model = load_adapter(base, snapshot, trainable=trainable)
    check_probes(model, snapshot.manifest)
    return model


def check_base(manifest: Manifest, base: BaseModel) -> None:
    """Make sure that a version belongs to this base and tokenizer.

    Raises:
        SnapshotCorruptError: it does not.
    """
    for name in ("digest", "tokenizer_digest"):
        field = "base_digest" if name == "digest" else name
        promised, found = getattr(manifest, field), getattr(base, name)
        if promised != found:
            raise SnapshotCorruptError(
                f"{manifest.version} needs {field} {promised:.12}, this base has {found:.12}; "
                "point policy.base at the folder that it was trained on"
            )
