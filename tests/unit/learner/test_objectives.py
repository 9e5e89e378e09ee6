import math
from typing import Any

import pytest
import torch
from torch import Tensor

from learner.objective_choice import choose_objective
from learner.objectives import (
    ObjectiveInputs,
    compute_cispo,
    compute_gspo,
    compute_kl_loss,
    compute_ppo_clip,
    compute_truncated_importance,
    compute_trust_region,
    sequence_ratios,
)
from learner.settings import (
    CispoSettings,
    GspoSettings,
    PpoClipSettings,
    TruncatedImportanceSettings,
    TrustRegionSettings,
)

REGION: dict[str, Any] = {
    "max_probability_difference": 0.2,
    "ratio_cap": 2.0,
    "log_ratio_weight": 0.0,
}
ALL = [
    TrustRegionSettings(log_ratio_weight=0.0),
    PpoClipSettings(),
    CispoSettings(),
    GspoSettings(),
    TruncatedImportanceSettings(),
]


def inputs(
    target: list[float], behaviour: list[float], advantage: float, *, padding: int = 0
) -> ObjectiveInputs:
    """One sequence, given as probabilities; padding holds values that must not matter."""
    target_T = torch.tensor([*target, *[0.9] * padding]).log()
    behaviour_T = torch.tensor([*behaviour, *[0.1] * padding]).log()
    return ObjectiveInputs(
        target_logprobs_BT=target_T.unsqueeze(0).requires_grad_(),
        behaviour_logprobs_BT=behaviour_T.unsqueeze(0),
        mask_BT=torch.tensor([[True] * len(target) + [False] * padding]),
        advantages_B=torch.tensor([advantage]),
    )


def gradient(given: ObjectiveInputs, loss_BT: Tensor) -> list[float]:
    (found,) = torch.autograd.grad(loss_BT.sum(), given.target_logprobs_BT)
    return [float(value) for value in found[0]]


@pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.kind)
@pytest.mark.parametrize("advantage", [1.5, -0.5])
def test_on_policy_every_objective_is_the_policy_gradient(settings: Any, advantage: float) -> None:
    given = inputs([0.5, 0.25], [0.5, 0.25], advantage, padding=1)
    output = choose_objective(settings)(given)
    # d/d log pi of -A log pi, nothing on padding.
    assert gradient(given, output.loss_BT) == pytest.approx([-advantage, -advantage, 0.0])
    assert not output.bounded_BT.any()


@pytest.mark.parametrize(
    ("target", "advantage", "expected"),
    [
        (0.6, 1.0, -0.6 / 0.5),  # moved by 0.1: free, weighted by the ratio
        (0.75, 1.0, 0.0),  # moved up by 0.25 with a positive advantage: held
        (0.75, -1.0, 0.75 / 0.5),  # moved up, but the advantage pulls back: free
        (0.25, -1.0, 0.0),  # moved down by 0.25 with a negative advantage: held
        (0.25, 1.0, -0.5),
    ],
)
def test_the_trust_region_holds_what_moved_too_far(
    target: float, advantage: float, expected: float
) -> None:
    given = inputs([target], [0.5], advantage)
    output = compute_trust_region(given, **REGION)
    assert gradient(given, output.loss_BT) == pytest.approx([expected])
    assert bool(output.bounded_BT.any()) is (expected == 0.0)


def test_the_ratio_is_truncated() -> None:
    given = inputs([0.3], [0.1], -1.0)
    # r = 3, capped at 2.
    loss_BT = compute_trust_region(given, **REGION).loss_BT
    assert gradient(given, loss_BT) == pytest.approx([2.0])


def test_the_squared_log_ratio_pulls_back_also_where_the_mask_holds() -> None:
    given = inputs([0.75], [0.5], 1.0)
    output = compute_trust_region(given, **(REGION | {"log_ratio_weight": 0.1}))
    log_ratio = math.log(1.5)
    assert float(output.loss_BT.detach()) == pytest.approx(0.1 * log_ratio**2)
    assert gradient(given, output.loss_BT) == pytest.approx([0.2 * log_ratio])


@pytest.mark.parametrize(
    ("target", "advantage", "loss"),
    [
        (0.55, 1.0, -1.1),  # r = 1.1, inside
        (0.75, 1.0, -1.28),  # r = 1.5, clipped above
        (0.25, 1.0, -0.5),  # r = 0.5: the minimum is the free one
        (0.25, -1.0, 0.8),  # r = 0.5, clipped below
        (0.75, -1.0, 1.5),
    ],
)
def test_ppo_clip_by_hand(target: float, advantage: float, loss: float) -> None:
    given = inputs([target], [0.5], advantage)
    output = compute_ppo_clip(given, clip_low=0.2, clip_high=0.28)
    assert float(output.loss_BT.detach()) == pytest.approx(loss)
    assert bool(output.bounded_BT.any()) is (abs(loss) in (1.28, 0.8))


def test_cispo_keeps_the_gradient_of_capped_tokens() -> None:
    given = inputs([0.9, 0.1], [0.1, 0.1], 1.0)
    output = compute_cispo(given, ratio_cap=5.0)
    assert gradient(given, output.loss_BT) == pytest.approx([-5.0, -1.0])
    assert output.bounded_BT.tolist() == [[True, False]]


def test_gspo_uses_one_ratio_for_the_sequence() -> None:
    given = inputs([0.5, 0.5], [0.5, 0.5 / 1.0002], 1.0)
    # s = exp(log(1.0002) / 2): inside, so each token's gradient is -s.
    s = math.sqrt(1.0002)
    output = compute_gspo(given, clip_low=3e-4, clip_high=4e-4)
    assert gradient(given, output.loss_BT) == pytest.approx([-s, -s])
    moved = inputs([0.6, 0.6], [0.5, 0.5], 1.0)
    output = compute_gspo(moved, clip_low=3e-4, clip_high=4e-4)
    assert gradient(moved, output.loss_BT) == [0.0, 0.0]
    assert output.bounded_BT.all()


def test_truncated_importance_multiplies_the_tokens_ratios() -> None:
    given = inputs([0.6, 0.6], [0.5, 0.5], 1.0)
    assert sequence_ratios(given).tolist() == pytest.approx([1.44])
    output = compute_truncated_importance(given, ratio_cap=2.0)
    assert gradient(given, output.loss_BT) == pytest.approx([-1.44, -1.44])
    far = inputs([0.9, 0.9], [0.5, 0.5], 1.0)
    output = compute_truncated_importance(far, ratio_cap=2.0)
    assert gradient(far, output.loss_BT) == pytest.approx([-2.0, -2.0])
    assert output.bounded_BT.all()


def test_kl_loss_has_the_gradient_of_the_log_ratio() -> None:
    target = torch.tensor([0.6]).log().requires_grad_()
    loss = compute_kl_loss(target, torch.tensor([0.5]).log())
    (found,) = torch.autograd.grad(loss.sum(), target)
    assert float(loss.detach()) == pytest.approx(math.log(1.2) ** 2 / 2)
    assert float(found) == pytest.approx(math.log(1.2))


@pytest.mark.parametrize("settings", ALL, ids=lambda settings: settings.kind)
def test_nan_on_padding_does_not_survive(settings: Any) -> None:
    given = inputs([0.5], [0.5], 1.0, padding=1)
    poisoned_BT = given.behaviour_logprobs_BT.clone()
    poisoned_BT[0, 1] = float("nan")
    poisoned = ObjectiveInputs(
        target_logprobs_BT=given.target_logprobs_BT,
        behaviour_logprobs_BT=poisoned_BT,
        mask_BT=given.mask_BT,
        advantages_B=given.advantages_B,
    )
    assert choose_objective(settings)(poisoned).loss_BT.isfinite().all()


def test_the_expected_gradient_is_that_of_the_expected_reward() -> None:
    """Three tokens, softmax policy: sum over actions of mu(a) * gradient, in closed form.

    With the exact ratio, E_mu[r A grad log pi] = grad sum_a pi(a) A(a) = pi * (A - pi . A).
    """
    logits_V = torch.tensor([0.2, -0.1, 0.4], requires_grad=True)
    behaviour_V = torch.tensor([0.3, 0.4, 0.3])
    advantages_V = torch.tensor([1.0, -0.5, 0.25])
    probabilities_V = logits_V.softmax(-1)
    given = ObjectiveInputs(
        target_logprobs_BT=logits_V.log_softmax(-1).unsqueeze(1),
        behaviour_logprobs_BT=behaviour_V.log().unsqueeze(1),
        mask_BT=torch.ones(3, 1, dtype=torch.bool),
        advantages_B=advantages_V,
    )
    loss_BT = compute_trust_region(given, **REGION).loss_BT
    (found,) = torch.autograd.grad((behaviour_V * loss_BT.squeeze(1)).sum(), logits_V)
    expected = probabilities_V * (advantages_V - (probabilities_V * advantages_V).sum())
    assert torch.allclose(found, -expected.detach(), atol=1e-6)
