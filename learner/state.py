"""Where a learner stands: everything but tensors, as JSON beside them in each checkpoint."""

import json
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from learner.advantages import BaselineState, ContextHistory


@dataclass(frozen=True, slots=True)
class Round:
    """A batch and how many of its optimiser steps are done; scored once, at its first use."""

    experience_ids: tuple[str, ...]
    advantages: tuple[float, ...]
    num_done: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerState:
    """Cursors and counters of a learner after one step."""

    serial: int
    """Steps and resets since the learner began; never goes back."""
    step: int
    """Optimiser steps in the lineage of the weights; a reset returns to the champion's."""
    lineage: int
    """Counts resets."""
    start_version: str
    """The champion that this lineage started from; also its reference policy."""
    published_versions: tuple[str, ...]
    """What this lineage published, oldest first."""
    published_number: int
    """The highest number that this learner ever published; 0 = none."""
    published_serial: int
    """Serial at the last publishing, or at the start of the lineage."""
    published_at: float
    """Seconds since 1970 of the last publishing, or of the learner's first start."""
    last_transition: int
    """The newest move of the registry that was looked at."""
    unpublished: dict[str, int]
    """Experiences used for the first time since the last publishing, by the version they are of."""
    first_experience: str | None
    last_experience: str | None
    """First and last of these."""
    reward_spec_hash: str | None
    """Of the last of these."""
    metrics: dict[str, float]
    """Of the last optimiser step."""
    baseline: BaselineState
    current_round: Round | None

    @property
    def has_unpublished_steps(self) -> bool:
        """Whether the weights moved since the last publishing or the start of the lineage."""
        return self.serial > self.published_serial

    @property
    def num_unpublished(self) -> int:
        """How many experiences were used for the first time since the last publishing."""
        return sum(self.unpublished.values())

    @property
    def head_version(self) -> str:
        """The newest version that the weights go back to."""
        return self.published_versions[-1] if self.published_versions else self.start_version


def encode_state(state: LearnerState) -> str:
    """Return the state as JSON; floats keep all their bits."""
    baseline = [[key, h.weight, h.mean] for key, h in state.baseline.histories.items()]
    current = None if state.current_round is None else asdict(state.current_round)
    document = {name: getattr(state, name) for name in _PLAIN}
    document |= {"baseline": baseline, "current_round": current}
    return json.dumps(document, allow_nan=False, separators=(",", ":"))


def decode_state(text: str) -> LearnerState:
    """Read what `encode_state` wrote."""
    document: dict[str, Any] = json.loads(text)
    histories = {key: ContextHistory(n, m) for key, n, m in document.pop("baseline")}
    current = document.pop("current_round")
    published = tuple(document.pop("published_versions"))
    return LearnerState(
        **document,
        published_versions=published,
        baseline=BaselineState(MappingProxyType(histories)),
        current_round=None
        if current is None
        else Round(
            tuple(current["experience_ids"]), tuple(current["advantages"]), current["num_done"]
        ),
    )


_PLAIN = tuple(name for name in LearnerState.__slots__ if name not in ("baseline", "current_round"))
