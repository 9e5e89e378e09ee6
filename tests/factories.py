"""Events and experiences for tests: consistent by default, every field can be given by name."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from tidemill.contracts.events import (
    Arm,
    Content,
    FeedbackReceived,
    FeedbackSource,
    FinishReason,
    InteractionServed,
    Sampling,
)
from tidemill.contracts.experience import Experience, Origin, Outcome
from tidemill.contracts.ids import new_feedback_id, new_interaction_id, trajectory_of
from tidemill.storage.learning import StepRecord

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
"""The time of every test that needs one."""

VERSION = "v1-0123456789ab"
"""A policy version that exists only in tests."""


def make_interaction(**over: Any) -> InteractionServed:
    """Return an interaction; ids that are not given are fresh and fit each other.

    A given `completion_ids` gets log-probs of its length; a given `interaction_id` its trajectory.
    """
    over = dict(over)
    if "interaction_id" in over:
        over.setdefault("trajectory_id", trajectory_of(over["interaction_id"]))
    trajectory_id = over.setdefault("trajectory_id", str(uuid4()))
    over.setdefault("interaction_id", new_interaction_id(trajectory_id))
    over.setdefault("completion_ids", (7, 8, 2))
    # Halves, so that a float32 on the way changes nothing.
    over.setdefault("behaviour_logprobs", (-0.5,) * len(over["completion_ids"]))
    version = over.pop("policy_version", VERSION)
    over.setdefault("oldest_policy_version", version)
    over.setdefault("newest_policy_version", version)
    defaults: dict[str, Any] = {
        "turn": 0,
        "tenant": "default",
        "model": "tide",
        "subject": "subject-1",
        "consent_train": True,
        "arm": Arm.CHAMPION,
        "assignment_probability": 1.0,
        "content": Content(
            messages=({"role": "user", "content": "lights on"},), completion="lights are on"
        ),
        "context": "lights",
        "prompt_ids": (1, 4, 5, 6),
        "sampling": Sampling(temperature=1.0, max_tokens=32),
        "finish_reason": FinishReason.STOP,
        "latency_ms": 12.5,
        "requested_at": NOW,
        "served_at": NOW,
    }
    return InteractionServed(**(defaults | over))


def make_feedback(interaction: InteractionServed | None = None, **over: Any) -> FeedbackReceived:
    """Return feedback on an interaction (a fresh one when None), an end user's `accepted: true`.

    `interaction_id=None` makes it feedback on the whole trajectory.
    """
    target = make_interaction() if interaction is None else interaction
    defaults: dict[str, Any] = {
        "feedback_id": new_feedback_id(),
        "tenant": target.tenant,
        "interaction_id": target.interaction_id,
        "trajectory_id": target.trajectory_id,
        "metric": "accepted",
        "value": True,
        "source": FeedbackSource.END_USER,
        "rater": "rater-1",
        "at": None,
        "received_at": NOW,
        "body_digest": "0" * 64,
    }
    return FeedbackReceived(**(defaults | over))


def make_experience(**over: Any) -> Experience:
    """Return a rewarded live experience; a given `completion_ids` gets log-probs of its length."""
    over = dict(over)
    trajectory_id = over.setdefault("trajectory_id", str(uuid4()))
    over.setdefault("experience_id", new_interaction_id(trajectory_id))
    over.setdefault("completion_ids", (7, 8, 2))
    over.setdefault("behaviour_logprobs", (-0.5,) * len(over["completion_ids"]))
    version = over.pop("policy_version", VERSION)
    over.setdefault("oldest_policy_version", version)
    over.setdefault("newest_policy_version", version)
    over.setdefault("reward", 1.0)
    over.setdefault("components", {"accepted": over["reward"]})
    defaults: dict[str, Any] = {
        "origin": Origin.LIVE,
        "tenant": "default",
        "model": "tide",
        "turn": 0,
        "subject": "subject-1",
        "context": "lights",
        "group": None,
        "arm": "champion",
        "assignment_probability": 1.0,
        "prompt_ids": (1, 4, 5, 6),
        "temperature": 1.0,
        "is_truncated": False,
        "kept_mass": None,
        "finish_reason": "stop",
        "outcome": Outcome.REWARDED,
        "reward_spec_hash": "0" * 64,
    }
    return Experience(**(defaults | over))


def make_step(serial: int = 1, **over: Any) -> StepRecord:
    """Build a step of the default learner."""
    defaults: dict[str, Any] = {
        "learner": "tide/default",
        "serial": serial,
        "step": serial,
        "lineage": 1,
        "origin": "live",
        "parent_version": VERSION,
        "checkpoint": f"{serial}.safetensors",
        "checkpoint_digest": "0" * 64,
        "metrics": {"loss": 0.5},
        "finished_at": NOW,
    }
    return StepRecord(**(defaults | over))
