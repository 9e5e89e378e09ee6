"""Invariant 3: the log-probs of serving and of the learner agree on the same weights.

The policy half: what the engine records while it generates (KV cache, rows of mixed lengths that
come and go, the lean adapter) is what the learner computes over whole sequences with peft.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.policies import LORA, make_requests, random_policy, random_weights
from tests.tiny_model import load_tiny_base
from tidemill.policy.adapters import adapter_state, load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.policy.batches import align_completion_values, build_token_batch
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.importance import effective_sample_size, importance_ratio
from tidemill.policy.logprobs import completion_logprobs
from tidemill.snapshots.manifest import Provenance, SnapshotDraft
from tidemill.snapshots.policies import load_policy
from tidemill.snapshots.probes import make_probes
from tidemill.snapshots.store import SnapshotStore

LENGTHS = (3, 41, 1, 17, 90, 8, 55, 29, 2, 66, 12, 37)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("max_batch", [12, 5])
def test_generation_and_learning_give_the_same_log_probs(
    base: BaseModel, temperature: float, max_batch: int
) -> None:
    weights = random_weights(base, seed=3)
    assert all(tensor.abs().max() > 0.1 for tensor in weights.tensors.values())
    served = load_adapter(base, weights)
    requests = [
        # Rows leave at different times, so that those behind them move.
        replace(r, sampling=r.sampling.model_copy(update={"max_tokens": 4 + 7 * place % 19}))
        for place, r in enumerate(make_requests(LENGTHS, temperature=temperature))
    ]
    generations = generate(served, base, requests, max_batch=max_batch)
    batch = build_token_batch([(g.prompt_ids, g.completion_ids) for g in generations], base.pad_id)
    recorded_BT = align_completion_values(batch, [g.logprobs for g in generations])
    learner = load_adapter(base, weights, trainable=True)
    target_BT = completion_logprobs(
        learner, batch, temperature_B=torch.full((len(LENGTHS),), temperature)
    )
    mask_BT = batch.completion_mask_BT
    assert len({len(g.completion_ids) for g in generations}) > 3
    assert (target_BT - recorded_BT).abs().max() <= TOLERANCE
    ratio_N = importance_ratio(target_BT[mask_BT], recorded_BT[mask_BT])
    assert (ratio_N - 1).abs().max() <= TOLERANCE
    assert effective_sample_size(ratio_N).item() == pytest.approx(ratio_N.numel(), rel=1e-5)


def test_a_published_version_keeps_the_log_probs_of_its_learner(
    tmp_path: Path, base: BaseModel
) -> None:
    learner = random_policy(base, seed=5)
    draft = SnapshotDraft(
        number=1,
        step=7,
        parent=None,
        lora=LORA,
        base_digest=base.digest,
        tokenizer_digest=base.tokenizer_digest,
        probes=make_probes(learner, base),
        provenance=Provenance(origin="live"),
    )
    store = SnapshotStore(tmp_path)
    version = store.write(adapter_state(learner), draft).version
    generations = generate(load_policy(base, store, version), base, make_requests(LENGTHS))
    batch = build_token_batch([(g.prompt_ids, g.completion_ids) for g in generations], base.pad_id)
    recorded_BT = align_completion_values(batch, [g.logprobs for g in generations])
    target_BT = completion_logprobs(learner, batch, temperature_B=torch.ones(len(LENGTHS)))
    assert (target_BT - recorded_BT).abs().max() <= TOLERANCE


def test_a_truncated_sample_records_the_untruncated_log_prob(base: BaseModel) -> None:
    served = load_adapter(base, random_weights(base, seed=3))
    requests = make_requests(LENGTHS, temperature=0.7, top_p=0.7, top_k=20)
    generations = generate(served, base, requests)
    batch = build_token_batch([(g.prompt_ids, g.completion_ids) for g in generations], base.pad_id)
    recorded_BT = align_completion_values(batch, [g.logprobs for g in generations])
    target_BT = completion_logprobs(served, batch, temperature_B=torch.full((len(LENGTHS),), 0.7))
    assert (target_BT - recorded_BT).abs().max() <= TOLERANCE
    masses = [mass for g in generations for mass in g.kept_mass or ()]
    assert len(masses) == batch.num_completion_tokens
    assert min(masses) < 0.9
