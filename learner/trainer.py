"""One adapter in training: forward, loss, gradient, AdamW; its tensors out and in, bit for bit.

Shapes: B sequence, T token.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from learner.objective_choice import choose_objective
from learner.objectives import ObjectiveInputs, compute_kl_loss, sequence_ratios
from learner.settings import ObjectiveSettings, OptimiserSettings
from learner.training_batch import TrainingBatch, build_training_batch
from tidemill.contracts.experience import Experience
from tidemill.errors import NonFiniteError
from tidemill.policy.adapters import (
    adapter_state,
    attach_adapter,
    load_adapter,
    load_adapter_state,
)
from tidemill.policy.base_model import BaseModel
from tidemill.policy.importance import effective_sample_size, kl_k3
from tidemill.policy.logprobs import completion_logits, token_entropy, token_logprobs
from tidemill.settings import LoraSettings

_Key = tuple[tuple[str, tuple[int, ...]], ...]

_WEIGHT, _FIRST, _SECOND, _COUNT, _RNG = "weight/", "exp_avg/", "exp_avg_sq/", "step/", "rng"


@dataclass(frozen=True, slots=True)
class AdapterWeights:
    """An adapter outside any model."""

    lora: LoraSettings
    tensors: dict[str, Tensor]


@dataclass(slots=True)
class _Sums:
    """What the micro-batches of one step add up to."""

    loss: float = 0.0
    kl_reference: float = 0.0
    reference_logprobs: dict[_Key, Tensor] = field(default_factory=dict)
    kl_behaviour: float = 0.0
    entropy: float = 0.0
    num_bounded: int = 0
    ratios: list[Tensor] = field(default_factory=list)


def fresh_adapter(base: BaseModel, lora: LoraSettings, *, seed: int) -> AdapterWeights:
    """Return an adapter that changes nothing yet: what training from the base alone begins with."""
    return AdapterWeights(lora, adapter_state(attach_adapter(base, lora, seed=seed)))


class Trainer:
    """Adapter, optimiser and reference policy on one base."""

    def __init__(
        self,
        base: BaseModel,
        *,
        start: AdapterWeights,
        settings: OptimiserSettings,
        objective: ObjectiveSettings,
    ) -> None:
        """Begin at an adapter, which is also the reference policy.

        Raises:
            SnapshotCorruptError: the adapter does not fit the base.
        """
        self.base = base
        self._lora = start.lora
        self._settings = settings
        self._objective = choose_objective(objective)
        self._model: nn.Module = attach_adapter(base, start.lora, seed=0)
        load_adapter_state(self._model, start.tensors)
        # Without a KL term nothing needs the reference, and its forward is a fifth of a step.
        self._reference = load_adapter(base, start) if settings.kl_weight else None
        self._reference_logprobs: dict[_Key, Tensor] = {}
        """Of the last step: an experience comes several times in a row."""
        self._parameters = {n: p for n, p in self._model.named_parameters() if p.requires_grad}
        self._optimiser = torch.optim.AdamW(
            list(self._parameters.values()),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            foreach=False,
        )

    def adapter(self) -> AdapterWeights:
        """Return a copy of the adapter as it is now."""
        return AdapterWeights(self._lora, adapter_state(self._model))

    def step(
        self, experiences: Sequence[Experience], advantages: Sequence[float]
    ) -> dict[str, float]:
        """Make one optimiser step and return its metrics.

        Raises:
            NonFiniteError: loss or gradient is NaN or infinite; nothing was changed.
        """
        self._model.train()
        self._optimiser.zero_grad(set_to_none=True)
        num_tokens = sum(len(experience.completion_ids) for experience in experiences)
        sums = _Sums()
        size = self._settings.micro_batch_size
        for start in range(0, len(experiences), size):
            part = slice(start, start + size)
            self._accumulate(experiences[part], advantages[part], num_tokens, sums)
        self._reference_logprobs = sums.reference_logprobs
        gradient_norm = float(
            nn.utils.clip_grad_norm_(self._parameters.values(), self._settings.max_grad_norm)
        )
        if not math.isfinite(sums.loss) or not math.isfinite(gradient_norm):
            self._optimiser.zero_grad(set_to_none=True)
            raise NonFiniteError(
                f"loss {sums.loss}, gradient norm {gradient_norm} on {len(experiences)} "
                "experiences; the step is refused and the batch dropped"
            )
        ratios_B = torch.cat(sums.ratios)
        share = float(effective_sample_size(ratios_B)) / len(experiences)
        for group in self._optimiser.param_groups:
            group["lr"] = self._settings.lr * math.sqrt(share)
        self._optimiser.step()
        known = {} if self._reference is None else {"kl_reference": sums.kl_reference / num_tokens}
        return known | {
            "loss": sums.loss,
            "gradient_norm": gradient_norm,
            "kl_behaviour": sums.kl_behaviour / num_tokens,
            "entropy": sums.entropy / num_tokens,
            "bounded_fraction": sums.num_bounded / num_tokens,
            "effective_sample_share": share,
            "lr": self._settings.lr * math.sqrt(share),
            "num_experiences": float(len(experiences)),
            "num_tokens": float(num_tokens),
        }

    def sequence_ratios(self, experiences: Sequence[Experience]) -> Tensor:
        """Return R_B, each completion's importance ratio under the weights as they are now."""
        self._model.eval()
        size = self._settings.micro_batch_size
        ratios = []
        for start in range(0, len(experiences), size):
            part = experiences[start : start + size]
            batch = build_training_batch(
                part, [0.0] * len(part), pad_id=self.base.pad_id, device=self.base.device
            )
            target_N = _score(self._model, batch, _temperatures(batch))
            ratios.append(sequence_ratios(_inputs(batch, target_N)))
        return torch.cat(ratios)

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of weights, optimiser state and random state."""
        found = {_RNG: torch.get_rng_state()}
        for name, parameter in self._parameters.items():
            found[_WEIGHT + name] = _copy(parameter)
            state: Mapping[str, Any] = self._optimiser.state.get(parameter, {})
            if state:
                found[_FIRST + name] = _copy(state["exp_avg"])
                found[_SECOND + name] = _copy(state["exp_avg_sq"])
                found[_COUNT + name] = _copy(state["step"])
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` returned: the next step gives the same bits."""
        torch.set_rng_state(tensors[_RNG])
        self._optimiser.state.clear()
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[_WEIGHT + name])
                if _COUNT + name in tensors:
                    self._optimiser.state[parameter] = {
                        "step": tensors[_COUNT + name].clone(),
                        "exp_avg": tensors[_FIRST + name].to(parameter.device, copy=True),
                        "exp_avg_sq": tensors[_SECOND + name].to(parameter.device, copy=True),
                    }

    def _accumulate(
        self,
        experiences: Sequence[Experience],
        advantages: Sequence[float],
        num_tokens: int,
        sums: _Sums,
    ) -> None:
        """Add a micro-batch's gradient and metrics; the denominator is the whole step's."""
        batch = build_training_batch(
            experiences, advantages, pad_id=self.base.pad_id, device=self.base.device
        )
        temperature_N = _temperatures(batch)
        logits_NV, ids_N = completion_logits(self._model, batch.tokens)
        target_N = token_logprobs(logits_NV, ids_N, temperature=temperature_N)
        with torch.no_grad():
            entropy_N = token_entropy(logits_NV.detach(), temperature=temperature_N)
        inputs = _inputs(batch, target_N)
        output = self._objective(inputs)
        total = output.loss_BT.sum()
        if self._reference is not None:
            key = tuple((e.experience_id, e.completion_ids) for e in experiences)
            reference_N = self._reference_logprobs.get(key)
            if reference_N is None:
                reference_N = _score(self._reference, batch, temperature_N)
            sums.reference_logprobs[key] = reference_N
            sums.kl_reference += float(kl_k3(reference_N - target_N.detach()).sum())
            total = total + self._settings.kl_weight * compute_kl_loss(target_N, reference_N).sum()
        loss = total / num_tokens
        loss.backward()  # type: ignore[no-untyped-call]
        target_N = target_N.detach()
        behaviour_N = batch.behaviour_logprobs_BT[inputs.mask_BT]
        sums.loss += float(loss.detach())
        sums.kl_behaviour += float(kl_k3(target_N - behaviour_N).sum())
        sums.entropy += float(entropy_N.sum())
        sums.num_bounded += int(output.bounded_BT.sum())
        sums.ratios.append(sequence_ratios(inputs))


def _temperatures(batch: TrainingBatch) -> Tensor:
    """Return temperature_N, each completion token's."""
    mask_BT = batch.tokens.completion_mask_BT
    return batch.temperature_B.unsqueeze(1).expand(mask_BT.shape)[mask_BT]


def _inputs(batch: TrainingBatch, target_N: Tensor) -> ObjectiveInputs:
    mask_BT = batch.tokens.completion_mask_BT
    zeros_BT = torch.zeros_like(batch.behaviour_logprobs_BT)
    return ObjectiveInputs(
        target_logprobs_BT=zeros_BT.masked_scatter(mask_BT, target_N),
        behaviour_logprobs_BT=batch.behaviour_logprobs_BT,
        mask_BT=mask_BT,
        advantages_B=batch.advantages_B,
    )


@torch.no_grad()
def _score(model: nn.Module, batch: TrainingBatch, temperature_N: Tensor) -> Tensor:
    """Return logprobs_N of a model that is not trained."""
    logits_NV, ids_N = completion_logits(model, batch.tokens)
    return token_logprobs(logits_NV, ids_N, temperature=temperature_N)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()
