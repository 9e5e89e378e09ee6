"""An experience: an interaction with its reward, ready to train on.

The hand-over from ingest and backfill to the learner and the gate. Its digest covers content only,
so that a replay of the log can be compared with the original.
"""

import hashlib
import json
from dataclasses import dataclass, fields
from enum import StrEnum


class Origin(StrEnum):
    """Where an experience comes from."""

    LIVE = "live"
    SIMULATED = "simulated"


class Outcome(StrEnum):
    """The ledger state of the interaction behind an experience."""

    REWARDED = "rewarded"
    DEFAULTED = "defaulted"
    """Nobody answered: the declared defaults stand in."""
    MALFORMED = "malformed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """One experience; token sequences are exactly those generated, never re-tokenised."""

    experience_id: str
    """The interaction id of a live one."""
    origin: Origin
    tenant: str
    model: str
    trajectory_id: str
    turn: int
    subject: str | None
    context: str
    """Key of the per-context baseline."""
    group: str | None
    """Rollouts of one prompt share it (simulated only)."""
    oldest_policy_version: str
    newest_policy_version: str
    arm: str
    assignment_probability: float
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    behaviour_logprobs: tuple[float, ...] | None
    temperature: float
    is_truncated: bool
    kept_mass: tuple[float, ...] | None
    finish_reason: str
    outcome: Outcome
    reward: float
    """In [0, 1]."""
    components: dict[str, float]
    """Each metric or verifier that entered the reward, normalised to [0, 1]."""
    reward_spec_hash: str

    @property
    def digest(self) -> str:
        """SHA-256 of the content; floats by their shortest exact text."""
        # Not `asdict`, which copies every token one by one.
        content = {one.name: getattr(self, one.name) for one in fields(self)}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def log_propensity(self) -> float | None:
        """Sum of the behaviour log-probs (nats); None without them."""
        if self.behaviour_logprobs is None:
            return None
        return sum(self.behaviour_logprobs)
