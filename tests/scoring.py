"""What the learner would compute for served interactions."""

from collections.abc import Sequence

import torch

from tests.serving_process import Installation
from tidemill.contracts.events import InteractionServed
from tidemill.policy.batches import build_token_batch
from tidemill.policy.logprobs import completion_logprobs
from tidemill.snapshots.policies import load_policy
from tidemill.snapshots.store import SnapshotStore


@torch.inference_mode()
def learner_logprobs(
    place: Installation, events: Sequence[InteractionServed], *, version: str
) -> list[list[float]]:
    """Compute what the learner would, all events in one batch."""
    model = load_policy(place.base, SnapshotStore(place.shared.snapshots_path), version)
    batch = build_token_batch([(e.prompt_ids, e.completion_ids) for e in events], pad_id=0)
    temperature_B = torch.tensor([event.sampling.temperature for event in events])
    logprobs_BT = completion_logprobs(model, batch, temperature_B=temperature_B)
    pairs = zip(logprobs_BT, batch.completion_mask_BT, strict=True)
    return [row_T[mask_T].tolist() for row_T, mask_T in pairs]


def differences(
    place: Installation, events: Sequence[InteractionServed], *, version: str
) -> list[float]:
    """Return for each event the largest absolute difference of stored and computed log-probs."""
    computed = learner_logprobs(place, events, version=version)
    return [
        max(abs(a - b) for a, b in zip(event.behaviour_logprobs or (), values, strict=True))
        for event, values in zip(events, computed, strict=True)
    ]
