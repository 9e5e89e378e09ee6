"""One definition of a log-prob: by numbers, by padding, by gradient."""

import math
from pathlib import Path

import pytest
import torch
from torch import tensor

from tests.policies import random_policy
from tests.tiny_model import load_tiny_base
from tidemill.policy.base_model import BaseModel
from tidemill.policy.batches import build_token_batch
from tidemill.policy.logprobs import completion_logprobs, token_entropy, token_logprobs


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    torch.set_num_threads(1)
    return load_tiny_base(Path(tmp_path_factory.mktemp("base")))


def test_log_probs_by_numbers() -> None:
    logits = tensor([[0.0, math.log(3.0)]])
    # softmax = (1/4, 3/4); at temperature 0.5 the logit doubles: (1/10, 9/10)
    for temperature, expected in ((1.0, 0.75), (0.5, 0.9)):
        found = token_logprobs(logits, tensor([1]), temperature=temperature)
        assert found.exp().item() == pytest.approx(expected)
        by_row = token_logprobs(logits, tensor([1]), temperature=tensor([temperature]))
        assert by_row.exp().item() == pytest.approx(expected)


def test_entropy_by_numbers() -> None:
    assert token_entropy(torch.zeros(1, 8), temperature=0.7).item() == pytest.approx(math.log(8))
    assert token_entropy(tensor([[0.0, 60.0]]), temperature=1.0).item() == pytest.approx(
        0, abs=1e-6
    )


def test_padding_and_company_change_nothing(base: BaseModel) -> None:
    pairs = [((10, 11, 12), (13, 14)), ((20,) * 9, (21, 22, 23, 24)), ((30,), (31,))]
    policy = random_policy(base, seed=1)
    temperature_B = tensor([1.0, 0.7, 1.3])
    together = completion_logprobs(policy, build_token_batch(pairs, 0), temperature_B=temperature_B)
    for row, pair in enumerate(pairs):
        batch = build_token_batch([pair], base.pad_id)
        alone = completion_logprobs(policy, batch, temperature_B=temperature_B[row : row + 1])
        width = batch.input_ids_BT.shape[1]
        assert (together[row, :width] - alone[0]).abs().max() <= 1e-5
        assert (together[row, width:] == 0).all()


def test_the_definition_is_that_of_the_whole_model(base: BaseModel) -> None:
    batch = build_token_batch([((10, 11, 12), (13, 14))], 0)
    logits_TV = base.model(input_ids=batch.input_ids_BT).logits[0]
    expected = [logits_TV[2].log_softmax(-1)[13], logits_TV[3].log_softmax(-1)[14]]
    found = completion_logprobs(base.model, batch, temperature_B=torch.ones(1))
    assert found[0, 3:].tolist() == pytest.approx([value.item() for value in expected], abs=1e-5)


def test_only_completions_move_the_adapter(base: BaseModel) -> None:
    policy = random_policy(base, seed=1)
    batch = build_token_batch([((10, 11), (12, 13)), ((10, 11), ())], 0)
    logprobs_BT = completion_logprobs(policy, batch, temperature_B=torch.ones(2))
    assert (logprobs_BT[1] == 0).all()
    logprobs_BT.sum().backward()
    moved = [p.grad.abs().sum() for p in policy.parameters() if p.grad is not None]
    assert len(moved) > 0
    assert all(p.grad is None for n, p in policy.named_parameters() if "lora" not in n)
    grads = torch.autograd.grad(
        completion_logprobs(policy, batch, temperature_B=torch.ones(2))[1].sum(),
        [p for p in policy.parameters() if p.requires_grad],
    )
    assert all((grad == 0).all() for grad in grads)
