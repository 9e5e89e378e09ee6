"""All settings of one installation, from one TOML file and the environment.

Shared fields stand at the top level of the file, each stage's own under `[ingest]`, `[serving]`,
`[learner]`, `[backfill]` and `[gating]`. The environment wins: `TIDEMILL_LEARNER__BATCH_SIZE=8`.
"""

import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from gating.settings import GatingSettings
from ingest.settings import IngestSettings
from learner.settings import BackfillSettings, LearnerSettings
from serving.settings import ServingSettings
from tidemill.errors import ConfigurationError
from tidemill.settings import SharedSettings

DEFAULT_FILE = Path("tidemill.toml")
_UNKNOWN_KEY = "extra_forbidden"
_SECRET_KEYS = frozenset({"password", "secret", "uri", "url"})
"""What no message shows; a URL may hold a password."""


class Settings(BaseSettings, SharedSettings):
    """Every block; built by `read_settings`."""

    model_config = SettingsConfigDict(
        env_prefix="TIDEMILL_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
    )

    ingest: IngestSettings = IngestSettings()
    serving: ServingSettings = ServingSettings()
    learner: LearnerSettings = LearnerSettings()
    backfill: BackfillSettings = BackfillSettings()
    gating: GatingSettings = GatingSettings()

    @property
    def shared(self) -> SharedSettings:
        """What every part agrees on."""
        return SharedSettings(**{name: getattr(self, name) for name in SharedSettings.model_fields})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  pydantic names the arguments
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Let the environment win over the file, whose values arrive as arguments."""
        return (env_settings, init_settings)


def read_settings(path: Path | None = None) -> Settings:
    """Read the file (`tidemill.toml` where there is one) and the environment.

    Raises:
        ConfigurationError: the file is missing or no TOML, a key is unknown, or a value is wrong;
            every bad key is named.
    """
    document = _read_file(path)
    try:
        return Settings(**document)
    except ValidationError as error:
        source = path or DEFAULT_FILE
        raise ConfigurationError(_explain(error, source)) from None


def _read_file(path: Path | None) -> dict[str, Any]:
    if path is None and not DEFAULT_FILE.exists():
        return {}
    file = path or DEFAULT_FILE
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"settings file {file}: {error.strerror}; `tidemill init` writes one"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"settings file {file} is no valid TOML: {error}") from error


def _explain(error: ValidationError, source: Path) -> str:
    lines = [f"wrong settings ({source}, or TIDEMILL_... in the environment):"]
    for detail in error.errors():
        key = ".".join(str(part) for part in detail["loc"])
        if detail["type"] == _UNKNOWN_KEY:
            lines.append(f"  {key}: unknown key; look for a misspelling, or remove it")
        else:
            shown = _without_secrets(detail["input"], key.rpartition(".")[2])
            lines.append(f"  {key}: {detail['msg']} (value: {shown!r})")
    return "\n".join(lines)


def _without_secrets(value: Any, key: str) -> Any:
    if key in _SECRET_KEYS:
        return "hidden"
    if isinstance(value, dict):
        return {name: _without_secrets(one, name) for name, one in value.items()}
    return value
