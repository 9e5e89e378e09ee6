"""Reads the metrics file (TOML)."""

import tomllib
from pathlib import Path

from pydantic import ValidationError

from tidemill.errors import ConfigurationError
from tidemill.rewards.metrics import MetricsFile


def load_metrics(path: Path) -> MetricsFile:
    """Return the declared metrics and the reward spec.

    Raises:
        ConfigurationError: no such file, no TOML, an unknown key, or a metric that cannot be.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"cannot read the metrics file {path}: {error}; `tidemill init` writes one"
        ) from error
    return parse_metrics(text, name=str(path))


def parse_metrics(text: str, *, name: str = "metrics") -> MetricsFile:
    """Read the text of a metrics file.

    Raises:
        ConfigurationError: no TOML, an unknown key, or a metric that cannot be.
    """
    try:
        return MetricsFile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{name} is no TOML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(
            f"{name}: {where}: {first['msg']} (value: {first['input']!r:.100})"
        ) from error
