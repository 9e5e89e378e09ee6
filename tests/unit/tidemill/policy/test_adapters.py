"""Adapters: many on one base, saved and loaded whole, the lean one equal to peft's."""

from pathlib import Path

import pytest
import torch

from tests.policies import LORA, Weights, random_policy, random_weights
from tests.tiny_model import load_tiny_base
from tidemill.errors import ConfigurationError, SnapshotCorruptError
from tidemill.policy.adapters import (
    adapter_state,
    attach_adapter,
    load_adapter,
    load_adapter_state,
)
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.batches import build_token_batch
from tidemill.policy.logprobs import completion_logprobs
from tidemill.settings import LoraSettings, PolicySettings

BATCH = build_token_batch([((10, 11, 12), (13, 14)), ((20,), (21, 22, 23))], 0)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


def score(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return completion_logprobs(model, BATCH, temperature_B=torch.ones(2))


def test_a_fresh_adapter_changes_nothing(base: BaseModel) -> None:
    assert torch.equal(score(attach_adapter(base, LORA, seed=3)), score(base.model))


def test_equal_seeds_give_equal_adapters(base: BaseModel) -> None:
    one, same, other = (adapter_state(attach_adapter(base, LORA, seed=s)) for s in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


def test_versions_live_side_by_side_and_share_the_base(base: BaseModel) -> None:
    before = score(base.model)
    weights = [random_weights(base, seed=seed) for seed in (1, 2)]
    models = [load_adapter(base, w) for w in weights]
    scores = [score(model) for model in models]
    assert not torch.allclose(scores[0], scores[1], atol=0.01)
    assert torch.equal(score(load_adapter(base, weights[0])), scores[0])
    assert torch.equal(score(base.model), before)
    assert torch.equal(score(load_adapter(base, None)), before)
    own = {p.data_ptr() for p in base.model.parameters()}
    assert all({p.data_ptr() for p in model.parameters()} <= own for model in models)


def test_the_lean_adapter_computes_what_pefts_does(base: BaseModel) -> None:
    weights = random_weights(base, seed=4)
    trained = load_adapter(base, weights, trainable=True)
    assert (score(trained) - score(load_adapter(base, weights))).abs().max() <= 1e-5
    assert trained.training


def test_the_state_returns_as_it_was(base: BaseModel) -> None:
    weights = random_weights(base, seed=4)
    for trainable in (False, True):
        model = load_adapter(base, weights, trainable=trainable)
        state = adapter_state(model)
        assert state.keys() == weights.tensors.keys()
        assert all(torch.equal(state[name], weights.tensors[name]) for name in state)
        next(iter(state.values())).zero_()
        assert not torch.equal(next(iter(adapter_state(model).values())), torch.zeros(1))


def test_training_moves_the_adapter_alone(base: BaseModel) -> None:
    policy = random_policy(base, seed=5)
    before = score(base.model)
    trainable = [p for p in policy.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trainable, lr=0.1)
    completion_logprobs(policy, BATCH, temperature_B=torch.ones(2)).sum().backward()
    optimiser.step()
    assert torch.equal(score(base.model), before)
    assert len(trainable) == len(adapter_state(policy))


def test_unfit_tensors_are_refused_and_nothing_changes(base: BaseModel) -> None:
    model = load_adapter(base, random_weights(base, seed=6))
    good = adapter_state(model)
    first = next(iter(good))
    for bad, complaint in (
        ({k: v for k, v in good.items() if k != first}, "do not match"),
        (good | {"extra": torch.zeros(1)}, "do not match"),
        (good | {first: torch.zeros(3, 3)}, "has shape"),
    ):
        with pytest.raises(SnapshotCorruptError, match=complaint):
            load_adapter_state(model, bad)
    assert all(torch.equal(good[name], value) for name, value in adapter_state(model).items())
    other = random_weights(base, seed=6, lora=LoraSettings(rank=2))
    with pytest.raises(SnapshotCorruptError, match="has shape"):
        load_adapter(base, Weights(LORA, other.tensors))


def test_modules_that_the_base_lacks_are_a_wrong_setting(base: BaseModel) -> None:
    with pytest.raises(ConfigurationError, match="does not fit the base"):
        attach_adapter(base, LoraSettings(target_modules=("no_such",)), seed=0)


def test_named_modules_alone_are_adapted(base: BaseModel) -> None:
    lora = LoraSettings(rank=2, target_modules=("q_proj", "v_proj"))
    state = adapter_state(attach_adapter(base, lora, seed=0))
    assert len(state) == 2 * 2 * 2
    assert all(".q_proj." in name or ".v_proj." in name for name in state)
    assert load_adapter(base, random_weights(base, seed=1, lora=lora)) is not None


def test_a_bfloat16_base_keeps_a_float32_adapter(base: BaseModel) -> None:
    narrow = load_base(base.path, settings=PolicySettings(device="cpu", dtype="bfloat16"))
    weights = random_weights(base, seed=7)
    model = load_adapter(narrow, weights)
    assert all(torch.equal(v, weights.tensors[k]) for k, v in adapter_state(model).items())
    trained = load_adapter(narrow, weights, trainable=True)
    assert (score(trained) - score(model)).abs().max() <= 0.05
