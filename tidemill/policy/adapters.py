"""Adapters on one base: each in a module tree of its own, all trees sharing the base's tensors.

Versions live side by side; nothing switches adapters in place and nothing merges them.
"""

import copy
import warnings
from typing import Any, Protocol

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor, nn

from tidemill.errors import ConfigurationError, SnapshotCorruptError
from tidemill.policy.base_model import BaseModel
from tidemill.policy.lora_linear import LoraLinear
from tidemill.settings import LoraSettings

_PREFIX = "base_model.model."
"""peft's prefix in adapter files."""


class AdapterSource(Protocol):
    """What `load_adapter` needs of a loaded snapshot."""

    @property
    def lora(self) -> LoraSettings:
        """Rank, alpha, target modules."""
        ...

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The adapter's tensors by their names in peft's files."""
        ...


def attach_adapter(base: BaseModel, lora: LoraSettings, *, seed: int) -> PeftModel:
    """Return a trainable adapter on the base: A random by the seed, B zero, so it changes nothing.

    The base's tensors are shared, its module tree is not touched.
    """
    targets = lora.target_modules
    config: Any = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft divides, so a float is fine
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        # peft still asks transformers by an old name; nothing that a user could act on.
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", append=False)
        torch.manual_seed(seed)
        try:
            model: PeftModel = get_peft_model(_tree_of(base), config)
        except ValueError as error:
            raise ConfigurationError(f"policy.lora does not fit the base: {error}") from error
    return model


def load_adapter(
    base: BaseModel, snapshot: AdapterSource | None, *, trainable: bool = False
) -> nn.Module:
    """Return the policy of a snapshot: base + adapter; None = the base alone (v0).

    Raises:
        SnapshotCorruptError: the adapter's tensors do not fit the base.
    """
    if snapshot is None:
        tree: nn.Module = _tree_of(base)
        return tree.eval()
    peft_model = attach_adapter(base, snapshot.lora, seed=0)
    model = peft_model if trainable else _freeze(peft_model)
    load_adapter_state(model, snapshot.tensors)
    return model if trainable else model.eval()


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """Return copies (CPU) of the adapter's tensors by their names in peft's files."""
    return {
        name: tensor.detach().to("cpu", copy=True).contiguous()
        for name, tensor in _adapter_tensors(model).items()
    }


def load_adapter_state(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Write tensors into the adapter.

    Raises:
        SnapshotCorruptError: a name or shape differs; the adapter is unchanged.
    """
    own = _adapter_tensors(model)
    if own.keys() != state.keys():
        odd = sorted(own.keys() ^ state.keys())
        raise SnapshotCorruptError(f"{len(odd)} adapter tensors do not match, first {odd[0]}")
    for name, tensor in own.items():
        if tensor.shape != state[name].shape:
            raise SnapshotCorruptError(
                f"{name} has shape {tuple(state[name].shape)}, the base needs {tuple(tensor.shape)}"
            )
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(state[name])


def _tree_of(base: BaseModel) -> Any:
    """Return a copy of the base's modules that shares its tensors."""
    shared = [*base.model.parameters(), *base.model.buffers()]
    return copy.deepcopy(base.model, {id(tensor): tensor for tensor in shared})


def _adapter_tensors(model: nn.Module) -> dict[str, Tensor]:
    if isinstance(model, PeftModel):
        return {
            name.replace(".default.", "."): parameter
            for name, parameter in model.named_parameters()
            if ".lora_A." in name or ".lora_B." in name
        }
    return {
        f"{_PREFIX}{name}.{part}.weight": getattr(module, part)
        for name, module in model.named_modules()
        if isinstance(module, LoraLinear)
        for part in ("lora_A", "lora_B")
    }


def _freeze(model: PeftModel) -> nn.Module:
    """Return the tree with peft's layers replaced by `LoraLinear`."""
    tree: nn.Module = model.get_base_model()
    for name, module in list(tree.named_modules()):
        if hasattr(module, "lora_A") and hasattr(module, "base_layer"):
            scaling = module.scaling["default"]
            lean = LoraLinear(module.base_layer, module.r["default"], scaling)
            tree.set_submodule(name, lean)
    return tree.requires_grad_(False)
