"""The base as version v0: registered as a candidate, once its folder is there."""

from tidemill.contracts.ids import PolicyVersion
from tidemill.errors import ConfigurationError
from tidemill.policy.base_model import RECORD_FILE, read_record
from tidemill.registry import PolicyRecord, PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database


def has_base(shared: SharedSettings) -> bool:
    """Tell whether there is a base."""
    return (shared.base_path / RECORD_FILE).is_file()


def ensure_base_version(shared: SharedSettings, database: Database) -> str:
    """Register the base as v0 if it is not there yet, and return its version.

    Raises:
        ConfigurationError: there is no base, or the registry knows another one.
    """
    record = read_record(shared.base_path)
    version = str(PolicyVersion.of(0, record["digest"]))
    registry = PolicyRegistry(database, model=shared.model, tenant=shared.tenant)
    for known in registry.list():
        if known.base_digest != record["digest"]:
            raise ConfigurationError(
                f"{known.version} was trained on base {known.base_digest:.12}, but "
                f"{shared.base_path} holds {record['digest']:.12}; put the old base back, or "
                "choose another `model` name or data folder for the new one"
            )
        if known.version == version:
            return version
    registry.register(
        PolicyRecord(
            version=version,
            digest=record["digest"],
            base_digest=record["digest"],
            provenance={
                "origin": "base",
                "licence": record.get("licence"),
                "made_by": record.get("made_by"),
            },
        )
    )
    return version
