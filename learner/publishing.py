"""From an adapter to a candidate: first a durable snapshot with probes, then the registry row."""

from dataclasses import dataclass

import tidemill
from learner.trainer import AdapterWeights, fresh_adapter
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.settings import LoraSettings
from tidemill.snapshots.manifest import Provenance, SnapshotDraft
from tidemill.snapshots.policies import base_version, check_base
from tidemill.snapshots.probes import make_probes
from tidemill.snapshots.store import SnapshotStore


@dataclass(frozen=True, slots=True)
class Publication:
    """An adapter and what is to be said of it."""

    weights: AdapterWeights
    step: int
    """Optimiser steps in its lineage."""
    parent: str
    """The version that training started from."""
    provenance: Provenance


@dataclass(frozen=True, slots=True)
class Publisher:
    """Reads and writes versions of one model."""

    base: BaseModel
    store: SnapshotStore
    registry: PolicyRegistry

    def publish(self, publication: Publication) -> PolicyRecord:
        """Write a version and register it as a candidate.

        A crash in between leaves a snapshot without a row, which nobody serves.

        Raises:
            NonFiniteError: the weights or their log-probs are not finite.
            SnapshotError: the disk refused.
        """
        weights = publication.weights
        probes = make_probes(load_adapter(self.base, weights), self.base)
        provenance = publication.provenance.model_copy(
            update={"code_version": tidemill.__version__}
        )
        draft = SnapshotDraft(
            number=self.registry.next_number(),
            step=publication.step,
            parent=publication.parent,
            lora=weights.lora,
            base_digest=self.base.digest,
            tokenizer_digest=self.base.tokenizer_digest,
            probes=probes,
            provenance=provenance,
        )
        manifest = self.store.write(weights.tensors, draft)
        return self.registry.register(
            PolicyRecord(
                version=manifest.version,
                digest=manifest.digest,
                base_digest=manifest.base_digest,
                parent=manifest.parent,
                step=manifest.step,
                snapshot=manifest.version,
                provenance=provenance.model_dump(mode="json"),
            )
        )

    def load(self, version: str, *, lora: LoraSettings, seed: int) -> AdapterWeights:
        """Return a version's adapter; of the base alone: a fresh one.

        Raises:
            SnapshotError: it is not there, damaged, or belongs to another base.
        """
        if version == base_version(self.base):
            return fresh_adapter(self.base, lora, seed=seed)
        snapshot = self.store.load(version)
        check_base(snapshot.manifest, self.base)
        return AdapterWeights(snapshot.lora, snapshot.tensors)
