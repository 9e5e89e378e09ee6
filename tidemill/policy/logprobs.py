"""Log-probs of tokens: the one definition that sampler, learner and gate share. Pure.

Natural logs, float32, of softmax(logits / temperature), before any truncation. Shapes: B sequence,
T token, V vocabulary, N completion tokens of all sequences in row-major order.
"""

from typing import Any

import torch
from torch import Tensor, nn

from tidemill.policy.batches import TokenBatch


def token_logprobs(logits_BTV: Tensor, ids_BT: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return log softmax(logits / temperature)[ids]: any leading shape, temperature broadcasts."""
    scaled_BTV = _scale(logits_BTV, temperature)
    chosen_BT = scaled_BTV.gather(-1, ids_BT.unsqueeze(-1)).squeeze(-1)
    return chosen_BT - scaled_BTV.logsumexp(-1)


def token_entropy(logits_BTV: Tensor, *, temperature: float | Tensor) -> Tensor:
    """Return -sum p log p (nats) of p = softmax(logits / temperature)."""
    logprobs_BTV = _scale(logits_BTV, temperature).log_softmax(-1)
    return -(logprobs_BTV.exp() * logprobs_BTV).sum(-1)


def completion_logits(model: nn.Module, batch: TokenBatch) -> tuple[Tensor, Tensor]:
    """Return (logits_NV that predict each completion token, ids_N of those tokens).

    The output layer runs on the N positions only.
    """
    hidden_BTH = decoder_of(model)(input_ids=batch.input_ids_BT, use_cache=False).last_hidden_state
    before_BT = batch.completion_mask_BT[:, 1:]
    hidden_NH = hidden_BTH[:, :-1][before_BT]
    return output_logits(model, hidden_NH), batch.input_ids_BT[:, 1:][before_BT]


def completion_logprobs(model: nn.Module, batch: TokenBatch, *, temperature_B: Tensor) -> Tensor:
    """Return logprobs_BT: log pi(token | all before it) at each completion token, 0 elsewhere.

    Gradients flow to the model's trainable tensors.
    """
    logits_NV, ids_N = completion_logits(model, batch)
    mask_BT = batch.completion_mask_BT
    temperature_N = temperature_B.unsqueeze(1).expand(mask_BT.shape)[mask_BT]
    logprobs_N = token_logprobs(logits_NV, ids_N, temperature=temperature_N)
    return logprobs_N.new_zeros(mask_BT.shape).masked_scatter(mask_BT, logprobs_N)


def decoder_of(model: Any) -> Any:
    """Return the part of a causal LM that ends with hidden states, also behind peft."""
    return _causal_lm(model).base_model


def output_logits(model: Any, hidden: Tensor) -> Tensor:
    """Return the output layer's logits for hidden states."""
    logits: Tensor = _causal_lm(model).get_output_embeddings()(hidden)
    return logits


def _causal_lm(model: Any) -> Any:
    is_peft = hasattr(model, "get_base_model")
    return model.get_base_model() if is_peft else model


def _scale(logits: Tensor, temperature: float | Tensor) -> Tensor:
    divisor = temperature.unsqueeze(-1) if isinstance(temperature, torch.Tensor) else temperature
    return logits.float() / divisor
