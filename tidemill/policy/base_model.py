"""The frozen base model: loaded from a folder of safetensors, its digests checked.

Only `.safetensors`, `.json`, `.jinja` and tokenizer text files are read; nothing in the folder can
bring code along.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from tidemill.errors import ConfigurationError, SnapshotCorruptError
from tidemill.policy.devices import choose_device, choose_dtype
from tidemill.settings import PolicySettings
from tidemill.snapshots.digests import tensor_digest, whole_digest

RECORD_FILE = "base.json"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""What decides how text becomes tokens."""


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A base in memory; adapters share its tensors, nobody writes to them."""

    model: Any
    """The transformers causal LM: evaluation mode, no gradients."""
    tokenizer: Any
    digest: str
    tokenizer_digest: str
    path: Path
    device: torch.device

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a completion."""
        declared = self.model.generation_config.eos_token_id
        ids = declared if isinstance(declared, list) else [declared]
        return frozenset(i for i in (*ids, self.tokenizer.eos_token_id) if i is not None)

    @property
    def pad_id(self) -> int:
        """A token for padding; it is never looked at."""
        return int(self.tokenizer.pad_token_id or 0)

    @property
    def vocabulary(self) -> int:
        """How many tokens it has; every token id is below."""
        return int(self.model.config.vocab_size)

    @property
    def max_context(self) -> int:
        """Longest prompt and completion together, in tokens."""
        config = self.model.config
        limits = (config.max_position_embeddings, getattr(config, "sliding_window", None))
        return int(min(limit for limit in limits if limit))


def load_base(path: Path, *, settings: PolicySettings) -> BaseModel:
    """Load the base of a folder and check it against its record.

    Raises:
        ConfigurationError: no base there.
        SnapshotCorruptError: the files are not those that were recorded.
    """
    record = read_record(path)
    digest, tokenizer = base_digest(path), tokenizer_digest(path)
    for name, found in (("digest", digest), ("tokenizer_digest", tokenizer)):
        if record[name] != found:
            raise SnapshotCorruptError(
                f"{path}: {name} is {found[:12]}, {RECORD_FILE} says {record[name]:.12}; "
                "restore the folder, or import or train the base again"
            )
    device = choose_device(settings)
    return BaseModel(
        model=load_model(path, device=device, dtype=choose_dtype(settings)),
        tokenizer=load_tokenizer(path),
        digest=digest,
        tokenizer_digest=tokenizer,
        path=path,
        device=device,
    )


def load_model(path: Path, *, device: torch.device, dtype: torch.dtype | Literal["auto"]) -> Any:
    """Load a causal LM from safetensors: evaluation mode, no gradients, no code of its own."""
    hush_progress_bars()
    model: Any = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        local_files_only=True,
        attn_implementation="sdpa",
    )
    return model.to(device).eval().requires_grad_(False)


def hush_progress_bars() -> None:
    """Keep transformers from drawing on stderr."""
    disable: Any = transformers_logging.disable_progress_bar
    disable()


def load_tokenizer(path: Path) -> Any:
    """Load a tokenizer from its text files, no code of its own.

    Raises:
        ConfigurationError: it is not one of the `tokenizers` library.
    """
    tokenizer: Any = AutoTokenizer.from_pretrained(
        path, trust_remote_code=False, local_files_only=True
    )
    if not getattr(tokenizer, "is_fast", False):
        raise ConfigurationError(f"{path} has no tokenizer.json; convert its tokenizer to one")
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def read_record(path: Path) -> dict[str, Any]:
    """Return the folder's record: digest, tokenizer_digest, licence, made_by.

    Raises:
        ConfigurationError: the folder is no base.
    """
    try:
        record: dict[str, Any] = json.loads((path / RECORD_FILE).read_text())
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"no base in {path} ({error}); make one with `tidemill base train` or "
            "`tidemill base import`"
        ) from error
    return record


def write_record(path: Path, *, licence: str, made_by: str) -> dict[str, Any]:
    """Compute the digests of a base folder and record them beside its licence and origin."""
    record = {
        "digest": base_digest(path),
        "tokenizer_digest": tokenizer_digest(path),
        "licence": licence,
        "made_by": made_by,
    }
    (path / RECORD_FILE).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")
    return record


def base_digest(path: Path) -> str:
    """Return SHA-256 over the configuration and every tensor of the folder's safetensors.

    Raises:
        SnapshotCorruptError: a file is no safetensors file, or there is none.
    """
    digests = {"config.json": hashlib.sha256((path / "config.json").read_bytes()).hexdigest()}
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise SnapshotCorruptError(f"{path} holds no .safetensors file")
    for file in files:
        try:
            with safe_open(file, framework="pt") as tensors:
                names = tensors.keys()
                digests |= {name: tensor_digest(tensors.get_tensor(name)) for name in names}
        except SafetensorError as error:
            raise SnapshotCorruptError(f"{file} cannot be read: {error}") from error
    return whole_digest(digests)


def tokenizer_digest(path: Path) -> str:
    """Return SHA-256 over the tokenizer's files and chat template."""
    found = [path / name for name in TOKENIZER_FILES if (path / name).is_file()]
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found}
    return whole_digest(digests)
