from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.settings import OptimiserSettings, TrustRegionSettings
from learner.staleness import DropReason, Limits, find_unfit
from learner.trainer import AdapterWeights, Trainer, fresh_adapter
from tests.factories import make_experience
from tests.tiny_model import load_tiny_base
from tidemill.contracts.events import Sampling
from tidemill.contracts.experience import Experience
from tidemill.errors import NonFiniteError
from tidemill.policy.adapters import load_adapter
from tidemill.policy.base_model import BaseModel
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.settings import LoraSettings

LORA = LoraSettings(rank=4)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


@pytest.fixture(scope="module")
def start(base: BaseModel) -> AdapterWeights:
    """An adapter that does something: B is not zero."""
    weights = fresh_adapter(base, LORA, seed=1)
    generator = torch.Generator().manual_seed(2)
    tensors = {
        name: tensor if "lora_A" in name else torch.randn(tensor.shape, generator=generator) * 0.05
        for name, tensor in weights.tensors.items()
    }
    return AdapterWeights(LORA, tensors)


@pytest.fixture(scope="module")
def batch(base: BaseModel, start: AdapterWeights) -> list[Experience]:
    return sample(base, start)


def sample(base: BaseModel, start: AdapterWeights, **truncation: Any) -> list[Experience]:
    """Nine completions of mixed lengths and temperatures, sampled from the start."""
    requests = [
        GenerationRequest(
            request_id=str(n),
            prompt_ids=tuple(range(4, 8 + n)),
            sampling=Sampling(
                temperature=0.7 if n % 2 else 1.0, max_tokens=2 + n % 4, seed=n, **truncation
            ),
        )
        for n in range(9)
    ]
    return [
        make_experience(
            prompt_ids=g.prompt_ids,
            completion_ids=g.completion_ids,
            behaviour_logprobs=g.logprobs,
            temperature=request.sampling.temperature,
            is_truncated=request.sampling.is_truncated,
            kept_mass=g.kept_mass,
        )
        for request, g in zip(
            requests, generate(load_adapter(base, start), base, requests), strict=True
        )
    ]


ADVANTAGES = [1.0, -1.0, 0.5, -0.5, 0.25, 1.0, -0.25, 0.0, -1.0]


def trainer_of(base: BaseModel, start: AdapterWeights, **over: object) -> Trainer:
    settings = OptimiserSettings(**over)  # type: ignore[arg-type]
    return Trainer(base, start=start, settings=settings, objective=TrustRegionSettings())


@pytest.mark.parametrize("truncation", [{}, {"top_p": 0.7}, {"top_k": 5}])
def test_on_policy_ratios_are_one(
    base: BaseModel, start: AdapterWeights, truncation: dict[str, Any]
) -> None:
    batch = sample(base, start, **truncation)
    masses = [mass for experience in batch for mass in experience.kept_mass or ()]
    assert min(masses, default=0.0) < 0.9
    metrics = trainer_of(base, start).step(batch, ADVANTAGES)
    assert metrics["kl_behaviour"] == pytest.approx(0, abs=1e-9)
    assert metrics["kl_reference"] == pytest.approx(0, abs=1e-9)
    assert metrics["effective_sample_share"] == pytest.approx(1, abs=1e-5)
    assert metrics["lr"] == pytest.approx(1e-3, rel=1e-5)
    assert metrics["bounded_fraction"] == 0


@pytest.mark.parametrize("size", [1, 4, 16])
def test_micro_batches_change_nothing(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience], size: int
) -> None:
    whole, parts = trainer_of(base, start), trainer_of(base, start, micro_batch_size=size)
    expected, found = whole.step(batch, ADVANTAGES), parts.step(batch, ADVANTAGES)
    assert found == pytest.approx(expected, abs=1e-5)
    for name, tensor in whole.adapter().tensors.items():
        assert torch.allclose(tensor, parts.adapter().tensors[name], atol=2e-5), name


def test_a_step_moves_probabilities_along_the_advantages(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    trainer = trainer_of(base, start)
    pushed = [batch[0], batch[1]]
    for _ in range(3):
        trainer.step(pushed, [1.0, -1.0])
    requests = [(e.prompt_ids, e.completion_ids) for e in pushed]
    from tidemill.policy.batches import build_token_batch
    from tidemill.policy.logprobs import completion_logprobs

    temperature_B = torch.tensor([e.temperature for e in pushed])
    tokens = build_token_batch(requests, base.pad_id)
    model = load_adapter(base, trainer.adapter())
    with torch.no_grad():
        after_B = completion_logprobs(model, tokens, temperature_B=temperature_B).sum(1)
    before = [e.log_propensity or 0.0 for e in pushed]
    assert float(after_B[0]) > before[0]
    assert float(after_B[1]) < before[1]


def test_a_restored_trainer_goes_on_bit_for_bit(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    through = trainer_of(base, start)
    through.step(batch, ADVANTAGES)
    saved = through.tensors()
    resumed = trainer_of(base, start)
    resumed.restore(saved)
    for trainer in (through, resumed):
        trainer.step(batch, ADVANTAGES)
        trainer.step(batch[:4], ADVANTAGES[:4])
    expected, found = through.tensors(), resumed.tensors()
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_a_poisoned_step_is_refused_and_changes_nothing(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    trainer = trainer_of(base, start)
    trainer.step(batch, ADVANTAGES)
    before = trainer.tensors()
    nan = float("nan")
    poisoned = [replace(batch[0], behaviour_logprobs=(nan,) * len(batch[0].completion_ids))]
    with pytest.raises(NonFiniteError, match="refused"):
        trainer.step([*poisoned, *batch[1:]], ADVANTAGES)
    with pytest.raises(NonFiniteError):
        trainer.step(batch, [nan, *ADVANTAGES[1:]])
    after = trainer.tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_small_effective_sample_size_lowers_the_learning_rate(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    # One behaviour log-prob far below the truth: its ratio dwarfs all others.
    odd = replace(batch[0], behaviour_logprobs=(-15.0,) * len(batch[0].completion_ids))
    metrics = trainer_of(base, start).step([odd, *batch[1:]], ADVANTAGES)
    assert metrics["effective_sample_share"] == pytest.approx(1 / 9, rel=0.05)
    assert metrics["lr"] == pytest.approx(1e-3 / 3, rel=0.05)


def test_the_kl_term_pulls_back_to_the_reference(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    free, held = trainer_of(base, start, kl_weight=1e-9), trainer_of(base, start, kl_weight=5.0)
    for _ in range(6):
        loose = free.step(batch, ADVANTAGES)["kl_reference"]
        tight = held.step(batch, ADVANTAGES)["kl_reference"]
    assert tight < loose / 2


def test_without_a_kl_weight_the_reference_is_not_computed(
    base: BaseModel, start: AdapterWeights, batch: Sequence[Experience]
) -> None:
    free, tiny = trainer_of(base, start, kl_weight=0.0), trainer_of(base, start, kl_weight=1e-12)
    assert "kl_reference" not in free.step(batch, ADVANTAGES)
    tiny.step(batch, ADVANTAGES)
    for name, tensor in free.adapter().tensors.items():
        assert torch.allclose(tensor, tiny.adapter().tensors[name], atol=1e-6), name


def test_what_is_sampled_greedily_is_found(base: BaseModel, start: AdapterWeights) -> None:
    limits = Limits(base.vocabulary, base.max_context)
    greedy = {find_unfit(e, limits) for e in sample(base, start, top_k=1)}
    assert greedy == {DropReason.GREEDY}
    assert {find_unfit(e, limits) for e in sample(base, start, top_k=5)} == {None}
