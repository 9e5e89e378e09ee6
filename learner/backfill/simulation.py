"""Simulated optimiser steps: roll out groups with the present weights, score, train."""

from dataclasses import dataclass, field

from torch import nn

from learner.advantages import compute_group_advantages
from learner.backfill.rollouts import RolloutPlan, Scoring, roll_out, to_experiences
from learner.settings import BackfillSettings
from learner.trainer import Trainer
from tidemill.contracts.experience import Experience
from tidemill.environments.base import Split, Task
from tidemill.policy.adapters import load_adapter, load_adapter_state


@dataclass(slots=True)
class Simulation:
    """A trainer that learns from its own rollouts, on-policy."""

    trainer: Trainer
    scoring: Scoring
    settings: BackfillSettings
    _model: nn.Module | None = field(default=None, init=False)
    """A lean copy of the policy for generation; it gets the trainer's weights before each step."""

    def step(self, number: int) -> dict[str, float]:
        """Make one step on fresh tasks and return its metrics; no signal = no optimiser step.

        `score` is the mean reward of all rollouts, `num_trained` how many had an advantage.

        Raises:
            NonFiniteError: loss or gradient is not finite; the weights are unchanged.
        """
        tasks = self._tasks(number)
        groups = self._roll_out(tasks, number)
        whole = [group for group in groups if len(group) > 1]
        experiences = [experience for group in whole for experience in group]
        rewards = [experience.reward for experience in experiences]
        names = [f"{index}" for index, group in enumerate(whole) for _ in group]
        found = compute_group_advantages(names, rewards)
        metrics = {
            "score": sum(rewards) / max(len(rewards), 1),
            "malformed": sum(e.outcome == "malformed" for e in experiences)
            / max(len(experiences), 1),
            "num_zero_variance_groups": float(found.num_zero_variance_groups),
            "num_short_groups": float(len(groups) - len(whole)),
            "num_trained": float(len(found.advantages)),
        }
        if found.advantages:
            chosen = sorted(found.advantages)
            metrics |= self.trainer.step(
                [experiences[i] for i in chosen], [found.advantages[i] for i in chosen]
            )
        return metrics

    def measure(self, number: int) -> float:
        """Return the mean reward of the rollouts of a step without training on them."""
        groups = self._roll_out(self._tasks(number), number)
        rewards = [experience.reward for group in groups for experience in group]
        return sum(rewards) / max(len(rewards), 1)

    def _tasks(self, number: int) -> list[Task]:
        return self.scoring.environment.tasks(
            Split.TRAIN,
            seed=self.settings.seed * 1_000_003 + number,
            count=self.settings.groups_per_step,
        )

    def _roll_out(self, tasks: list[Task], number: int) -> list[list[Experience]]:
        weights = self.trainer.adapter()
        if self._model is None:
            self._model = load_adapter(self.trainer.base, weights)
        load_adapter_state(self._model, weights.tensors)
        settings = self.settings
        plan = RolloutPlan(
            group_size=settings.group_size,
            temperature=settings.temperature,
            max_tokens=settings.max_tokens,
            max_batch=settings.max_batch,
        )
        seed = settings.seed * 1_000_003 + number
        groups = roll_out(self._model, self.trainer.base, tasks, plan=plan, seed=seed)
        return [
            to_experiences(task, generations, self.scoring)
            for task, generations in zip(tasks, groups, strict=True)
        ]
