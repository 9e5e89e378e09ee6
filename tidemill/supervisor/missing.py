"""What still keeps answers from being served."""

from tidemill.contracts.lifecycle import PolicyStatus
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings

_BASE_RECORD = "base.json"


def find_missing(shared: SharedSettings, registry: PolicyRegistry) -> str | None:
    """Return what keeps answers from being served and what to do about it; None = nothing."""
    if registry.traffic().champion is not None:
        return None
    if not (shared.base_path / _BASE_RECORD).is_file():
        return (
            f"no base model in {shared.base_path}: "
            "run `tidemill base train` or `tidemill base import DIR`"
        )
    rejected = len(registry.list(PolicyStatus.REJECTED))
    if rejected and not registry.candidates():
        return (
            f"no champion: the versions so far ({rejected}) were rejected; "
            "`tidemill backfill` makes better ones"
        )
    if shared.environment is None:
        return "no champion yet: declare `environment`, whose tasks are the offline suite"
    return "no champion yet: the gate's offline suite decides"
