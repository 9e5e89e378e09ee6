"""The offline suite: a version answers held-out tasks, the environment's verifier scores them."""

import logging
from dataclasses import asdict, dataclass, field
from typing import Any

from gating.decisions import Missing
from gating.settings import OfflineSettings
from tidemill.contracts.events import Sampling
from tidemill.environments.base import Environment, Split
from tidemill.environments.loading import load_environment
from tidemill.errors import ConfigurationError, ProbeFailedError, SnapshotCorruptError
from tidemill.policy.base_model import BaseModel, load_base
from tidemill.policy.chat import render_prompt
from tidemill.policy.engine.batch_engine import generate
from tidemill.policy.engine.requests import GenerationRequest
from tidemill.settings import SharedSettings
from tidemill.snapshots.policies import load_policy
from tidemill.snapshots.store import SnapshotStore

_log = logging.getLogger(__name__)

NO_SUITE = "no suite: set `environment`, or `gating.offline.allow_without_suite` to go without"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """What one version did on the suite."""

    suite: dict[str, Any]
    """What was asked, and how: only results of equal suites compare."""
    num_tasks: int
    score: float
    malformed_rate: float
    mean_tokens: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures for the decision's row."""
        return asdict(self)


@dataclass(slots=True)
class OfflineSuite:
    """Runs the suite in this process; the base is loaded once, when first needed."""

    shared: SharedSettings
    settings: OfflineSettings
    _base: BaseModel | None = field(default=None, init=False)

    def describe(self) -> dict[str, Any]:
        """Return what identifies the suite."""
        settings = self.settings
        return {
            "environment": self.shared.environment,
            "num_tasks": settings.num_tasks,
            "seed": settings.seed,
            "temperature": settings.temperature,
            "max_tokens": settings.max_tokens,
        }

    def measure(self, version: str) -> SuiteResult | Missing:
        """Run the suite on a version; whatever keeps it from being judged is Missing.

        Raises:
            SnapshotCorruptError: it is not what was written; it must never serve.
            ProbeFailedError: its weights compute something else than was promised.
        """
        if self.shared.environment is None:
            return Missing(NO_SUITE)
        try:
            return self._run(load_environment(self.shared.environment), version)
        except (SnapshotCorruptError, ProbeFailedError):
            raise
        except Exception as error:
            # The environment is a product's own code: whatever it does, the gate goes on.
            _log.exception("the offline suite failed on %s", version)
            return Missing(f"the offline suite failed: {type(error).__name__}: {error}"[:500])

    def _run(self, environment: Environment, version: str) -> SuiteResult:
        settings = self.settings
        base = self._load_base()
        model = load_policy(base, SnapshotStore(self.shared.snapshots_path), version)
        tasks = environment.tasks(Split.HELD_OUT, seed=settings.seed, count=settings.num_tasks)
        if not tasks:
            raise ConfigurationError(f"{environment.name} gave no held-out tasks")
        requests = [
            GenerationRequest(
                request_id=str(index),
                prompt_ids=tuple(render_prompt(base, task.messages, task.tools)),
                sampling=Sampling(
                    temperature=settings.temperature,
                    max_tokens=settings.max_tokens,
                    # Its own randomness for each task, the same for each version.
                    seed=settings.seed + index,
                ),
            )
            for index, task in enumerate(tasks)
        ]
        generations = generate(model, base, requests, max_batch=settings.max_batch)
        checked = [
            environment.verify(task, generation.text)
            for task, generation in zip(tasks, generations, strict=True)
        ]
        count = len(tasks)
        return SuiteResult(
            suite=self.describe(),
            num_tasks=count,
            score=sum(verification.score for verification in checked) / count,
            malformed_rate=sum(verification.is_malformed for verification in checked) / count,
            mean_tokens=sum(len(g.completion_ids) for g in generations) / count,
        )

    def _load_base(self) -> BaseModel:
        if self._base is None:
            self._base = load_base(self.shared.base_path, settings=self.shared.policy)
        return self._base
