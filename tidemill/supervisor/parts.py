"""Which parts there are, and the command of each."""

import sys
from dataclasses import dataclass, field

SERVING = "serving"
API = "ingest-api"

_COMMANDS = {
    API: ("api",),
    "ingest-worker": ("ingest",),
    SERVING: ("serve",),
    "learner": ("learn",),
    "gate": ("gate",),
}


@dataclass(frozen=True, slots=True)
class Part:
    """One process to keep alive."""

    name: str
    """As in its heartbeat and the name of its log file."""
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    """Added to our own."""
    url: str | None = None
    """Where it answers `/health` and `/ready`; None = it has no HTTP face."""


def build_parts(environment: dict[str, str], addresses: dict[str, str]) -> tuple[Part, ...]:
    """Return the parts of one installation, in the order in which they start.

    Args:
        environment: what tells the children which settings to use.
        addresses: `serving` and `feedback`, each a URL.
    """
    urls = {SERVING: addresses["serving"], API: addresses["feedback"]}
    return tuple(
        Part(
            name=name,
            # -P: a part finds what the console script finds. With the working folder in front, a
            # product's own folder named `serving` or `migrations` would stand in for ours.
            command=(sys.executable, "-P", "-m", "tidemill.cli.main", *command),
            environment=environment,
            url=urls.get(name),
        )
        for name, command in _COMMANDS.items()
    )
