"""What one `tidemill up` looks at while its parts run: their health, and what is missing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tidemill.errors import TidemillError
from tidemill.registry import PolicyRegistry
from tidemill.settings import SharedSettings
from tidemill.storage.database import Database
from tidemill.supervisor.health import (
    PartHealth,
    PartState,
    ask_http,
    changed,
    judge_child,
    read_signs,
    with_http,
)
from tidemill.supervisor.missing import find_missing
from tidemill.supervisor.parts import Part


@dataclass(slots=True)
class Installation:
    """Says each change once: a part's state, and what keeps answers from being served."""

    shared: SharedSettings
    database: Database
    parts: Sequence[Part]
    say: Callable[[str], None]
    _health: list[PartHealth] = field(default_factory=list, init=False)
    _said: str | None = field(default=None, init=False)
    _was_ready: bool = field(default=False, init=False)

    @property
    def registry(self) -> PolicyRegistry:
        """The versions of this installation's model."""
        return PolicyRegistry(self.database, model=self.shared.model, tenant=self.shared.tenant)

    def watch(self, pids: dict[str, int]) -> None:
        """Look at every part and say what changed."""
        health = self.look(pids)
        for line in changed(self._health, health):
            if line.state is PartState.STARTING:
                continue  # the supervisor said so
            self.say(f"{line.name}: {line.state.value}, {line.detail}")
        self._health = health
        self._say_missing()
        is_ready = len(health) == len(self.parts) and all(
            line.state is PartState.READY for line in health
        )
        if is_ready and not self._was_ready:
            self.say("all parts are ready")
        self._was_ready = is_ready

    def look(self, pids: dict[str, int]) -> list[PartHealth]:
        """Return the health of each living part."""
        now, signs = datetime.now(UTC), read_signs(self.database)
        lines = []
        for part in self.parts:
            if part.name in pids:
                sign = signs.get(part.name)
                health = judge_child(sign, name=part.name, pid=pids[part.name], now=now)
                lines.append(with_http(health, part.url, ask_http))
        return lines

    def _say_missing(self) -> None:
        try:
            missing = find_missing(self.shared, self.registry)
        except TidemillError as error:
            missing = str(error)
        if missing is not None and missing != self._said:
            self.say(f"missing: {missing}")
        self._said = missing
