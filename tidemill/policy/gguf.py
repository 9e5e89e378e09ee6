"""A GGUF file as a plain model: quantised weights are expanded, nothing of the format is kept."""

import importlib.util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tidemill.errors import ConfigurationError
from tidemill.policy.base_model import hush_progress_bars


def load_gguf(file: Path) -> tuple[Any, Any]:
    """Return (model, tokenizer) of a GGUF file, in float32.

    Raises:
        ConfigurationError: the `gguf` package is missing, or the file cannot be read.
    """
    if importlib.util.find_spec("gguf") is None:
        raise ConfigurationError(f"{file.name} needs the package gguf: pip install gguf")
    hush_progress_bars()
    where: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **where)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            file.parent, dtype=torch.float32, **where
        )
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, TypeError) as error:
        first = (str(error).strip() or repr(error)).splitlines()[0]
        raise ConfigurationError(f"{file} cannot be read as GGUF: {first}") from error
    return _plain(loaded), tokenizer


def _plain(loaded: Any) -> Any:
    """Return a model built from the configuration alone, with the loaded weights.

    What transformers loads from GGUF still carries a quantiser, which refuses training and saving.
    """
    config = type(loaded.config).from_dict(
        {k: v for k, v in loaded.config.to_dict().items() if k != "quantization_config"}
    )
    model = type(loaded)(config)
    model.load_state_dict(loaded.state_dict())
    model.generation_config = loaded.generation_config
    return model.eval().requires_grad_(False)
