"""Where and how precisely a part computes."""

import os

import torch

from tidemill.errors import ConfigurationError
from tidemill.settings import PolicySettings

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def prepare_torch(settings: PolicySettings) -> None:
    """Set this process's torch threads and precision; call once, before the first tensor."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch.set_num_threads(settings.num_threads)
    # TF32 would move log-probs by 1e-3, past the identity between serving and learner.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def choose_device(settings: PolicySettings) -> torch.device:
    """Return the device that the settings name; `auto` = CUDA where there is one, else CPU.

    Raises:
        ConfigurationError: no such device here.
    """
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(settings.device)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigurationError(
            f"policy.device {settings.device!r} cannot be used here: {error}; use auto, cpu or cuda"
        ) from error
    return device


def choose_dtype(settings: PolicySettings) -> torch.dtype:
    """Return the torch type of the settings' name."""
    return _DTYPES[settings.dtype]
