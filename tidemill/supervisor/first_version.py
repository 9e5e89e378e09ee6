"""The base as the first version, and what still keeps answers from being served."""

import json

from tidemill.contracts.ids import PolicyVersion
from tidemill.contracts.lifecycle import PolicyStatus
from tidemill.errors import ConfigurationError, PolicyNotFoundError
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.settings import SharedSettings

_BASE_RECORD = "base.json"


def read_base_digest(shared: SharedSettings) -> str | None:
    """Return the digest that the base folder declares; None = no base yet.

    The folder itself is checked by whoever loads it; here torch is not at hand.

    Raises:
        ConfigurationError: the record cannot be read.
    """
    path = shared.base_path / _BASE_RECORD
    if not path.exists():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["digest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} cannot be read ({error!r}); import or train the base again"
        ) from error


def register_base(registry: PolicyRegistry, digest: str) -> PolicyRecord:
    """Register the base as version v0, a candidate like any other; again changes nothing.

    Raises:
        ConfigurationError: this installation began with another base.
    """
    version = str(PolicyVersion(0, digest[:12]))
    try:
        first = registry.find("v0")
    except PolicyNotFoundError:
        return registry.register(
            PolicyRecord(
                version=version,
                digest=digest,
                base_digest=digest,
                provenance={"origin": "base"},
            )
        )
    if first.version != version:
        raise ConfigurationError(
            f"the base has digest {digest[:12]}, but this data folder began with {first.version}; "
            "put that base back, or give --data another folder for the new one"
        )
    return first


def find_missing(shared: SharedSettings, registry: PolicyRegistry) -> str | None:
    """Return what keeps answers from being served and what to do about it; None = nothing."""
    if read_base_digest(shared) is None:
        return (
            f"no base model in {shared.base_path}: "
            "run `tidemill base train` or `tidemill base import DIR`"
        )
    if registry.traffic().champion is not None:
        return None
    if registry.candidates():
        suite = (
            "the gate's offline suite decides"
            if shared.environment
            else "declare `environment`, whose tasks are the offline suite"
        )
        return f"no champion yet: {suite}"
    rejected = len(registry.list(PolicyStatus.REJECTED))
    return (
        f"no champion: all {rejected} versions were rejected; `tidemill backfill` makes better ones"
    )
