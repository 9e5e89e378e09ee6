"""Rollouts: groups of completions of one task each, as experiences with the verifier's reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from tidemill.contracts.events import FinishReason, Sampling
from tidemill.contracts.experience import Experience, Origin, Outcome
from tidemill.environments.base import Environment, Task, Verification
from tidemill.policy.base_model import BaseModel
from tidemill.policy.chat import render_prompt
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import Generation, GenerationRequest

Reward = Callable[[Verification], float]
"""From what the verifier says to the reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutPlan:
    """How to roll out."""

    group_size: int
    temperature: float
    max_tokens: int
    max_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scoring:
    """Where completions are judged, and what their experiences have in common."""

    environment: Environment
    reward: Reward
    tenant: str
    model: str
    version: str
    """The version that the run started from."""
    temperature: float


def roll_out(
    model: nn.Module,
    base: BaseModel,
    tasks: Sequence[Task],
    *,
    plan: RolloutPlan,
    seed: int,
) -> list[list[Generation]]:
    """Complete each task `group_size` times; equal arguments give equal tokens."""
    requests = []
    for index, task in enumerate(tasks):
        prompt_ids = tuple(render_prompt(base, task.messages, task.tools))
        for rollout in range(plan.group_size):
            number = (seed * len(tasks) + index) * plan.group_size + rollout
            sampling = Sampling(
                temperature=plan.temperature, max_tokens=plan.max_tokens, seed=number
            )
            requests.append(
                GenerationRequest(
                    request_id=f"{index}.{rollout}", prompt_ids=prompt_ids, sampling=sampling
                )
            )
    generations = generate(model, base, requests, max_batch=plan.max_batch)
    size = plan.group_size
    return [generations[start : start + size] for start in range(0, len(generations), size)]


def to_experiences(
    task: Task, generations: Sequence[Generation], scoring: Scoring
) -> list[Experience]:
    """Score one task's completions; one that failed or has no token is left out."""
    experiences = []
    for number, generation in enumerate(generations):
        if generation.finish_reason is FinishReason.ERROR or not generation.completion_ids:
            continue
        verification = scoring.environment.verify(task, generation.text)
        experiences.append(
            Experience(
                experience_id=f"{task.task_id}.{number}",
                origin=Origin.SIMULATED,
                tenant=scoring.tenant,
                model=scoring.model,
                trajectory_id=task.task_id,
                turn=0,
                subject=None,
                context=task.context,
                group=task.task_id,
                oldest_policy_version=scoring.version,
                newest_policy_version=scoring.version,
                arm="simulated",
                assignment_probability=1.0,
                prompt_ids=generation.prompt_ids,
                completion_ids=generation.completion_ids,
                behaviour_logprobs=generation.logprobs,
                temperature=scoring.temperature,
                is_truncated=False,
                kept_mass=None,
                finish_reason=generation.finish_reason.value,
                outcome=Outcome.MALFORMED if verification.is_malformed else Outcome.REWARDED,
                reward=scoring.reward(verification),
                components=dict(verification.components),
                reward_spec_hash=scoring.environment.name,
            )
        )
    return experiences
