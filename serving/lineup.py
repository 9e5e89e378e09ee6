"""Who serves now, and to whom a request goes. Pure.

A lineup is one immutable value: a swap replaces it whole, so a request sees the versions either
before or after it, never a mixture.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serving.assignment import PINNED, Assignment, assign
from tidemill.contracts.events import Arm


@dataclass(frozen=True, slots=True)
class Route:
    """The version of one request, and how it came to it."""

    version: str
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineup:
    """The versions that this replica has loaded, verified and made reachable."""

    champion: str | None = None
    challenger: str | None = None
    challenger_share: float = 0.0
    salt: str = ""

    @property
    def versions(self) -> tuple[str, ...]:
        """All of them, champion first."""
        return tuple(v for v in (self.champion, self.challenger) if v is not None)

    def route(self, unit: str) -> Route | None:
        """Follow the traffic split; None = nobody serves yet."""
        if self.champion is None:
            return None
        if self.challenger is None:
            return Route(self.champion, Assignment(Arm.CHAMPION, 1.0))
        assignment = assign(unit, salt=self.salt, challenger_share=self.challenger_share)
        is_challenger = assignment.arm is Arm.CHALLENGER
        return Route(self.challenger if is_challenger else self.champion, assignment)

    def pin(self, version: str) -> Route | None:
        """Follow the caller's wish; None = that version is not served."""
        return Route(version, PINNED) if version in self.versions else None


def model_names(model: str, versions: Sequence[str]) -> list[str]:
    """Return the names that callers may ask for: the model, and each version pinned."""
    return [model, *(pinned_name(model, version) for version in versions)]


def pinned_name(model: str, version: str) -> str:
    """Return the name that asks for one version of a model."""
    return f"{model}@{version}"


def pinned_version(name: str, *, model: str) -> str | None:
    """Read the version out of a pinned name; None = another model's name.

    The plain model name gives an empty text: no version is pinned.
    """
    if name == model:
        return ""
    prefix = f"{model}@"
    return name.removeprefix(prefix) if name.startswith(prefix) else None
