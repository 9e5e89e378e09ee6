"""What an operator may set about learning; the defaults suit a candidate every two hours."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tidemill.settings import Block


class TrustRegionSettings(Block):
    """Importance-weighted policy gradient with a mask on the probability difference."""

    kind: Literal["trust_region"] = "trust_region"
    max_probability_difference: float = Field(default=0.2, gt=0, le=1)
    """A token that moved further than this in the advantage's direction gets no more push."""
    ratio_cap: float = Field(default=2.0, ge=1)
    """Importance ratios are truncated here."""
    log_ratio_weight: float = Field(default=1e-3, ge=0)
    """Weight of the squared log-ratio, on every token: a soft pull towards the behaviour policy."""


class PpoClipSettings(Block):
    """PPO's clipped surrogate, with different bounds below and above."""

    kind: Literal["ppo_clip"] = "ppo_clip"
    clip_low: float = Field(default=0.2, gt=0, lt=1)
    clip_high: float = Field(default=0.28, gt=0)


class CispoSettings(Block):
    """Truncated ratio as a constant weight on the log-prob: no token loses its gradient."""

    kind: Literal["cispo"] = "cispo"
    ratio_cap: float = Field(default=5.0, ge=1)


class GspoSettings(Block):
    """The clipped surrogate on the length-normalised ratio of the whole sequence."""

    kind: Literal["gspo"] = "gspo"
    clip_low: float = Field(default=3e-4, gt=0, lt=1)
    clip_high: float = Field(default=4e-4, gt=0)


class TruncatedImportanceSettings(Block):
    """Plain policy gradient, weighted by the truncated ratio of the whole sequence."""

    kind: Literal["truncated_importance"] = "truncated_importance"
    ratio_cap: float = Field(default=2.0, ge=1)


ObjectiveSettings = Annotated[
    TrustRegionSettings
    | PpoClipSettings
    | CispoSettings
    | GspoSettings
    | TruncatedImportanceSettings,
    Field(discriminator="kind"),
]


class BaselineSettings(Block):
    """The per-context baseline of single live rollouts."""

    prior_weight: float = Field(default=4.0, gt=0)
    """How many rewards the batch leave-one-out mean counts for."""
    forgetting: float = Field(default=0.95, gt=0, le=1)
    """A context's history counts this much less with each new reward of it."""
    max_contexts: int = Field(default=20_000, ge=1)
    """The contexts longest without a reward are forgotten beyond this many."""


class OptimiserSettings(Block):
    """AdamW."""

    lr: float = Field(default=1e-3, gt=0, le=1)
    """At a full effective sample size; scaled by sqrt(effective sample size / batch)."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0, le=1)
    max_grad_norm: float = Field(default=1.0, gt=0)
    kl_weight: float = Field(default=0.02, ge=0)
    """Weight of the KL to the reference policy (k2)."""
    micro_batch_size: int = Field(default=16, ge=1)
    """Sequences in one forward; changes memory, not the result."""


class ShareSettings(Block):
    """How much of one batch may come from one origin; one experience is always allowed."""

    subject: float = Field(default=0.25, gt=0, le=1)
    rater: float = Field(default=0.25, gt=0, le=1)
    tenant: float = Field(default=1.0, gt=0, le=1)


class LearnerSettings(Block):
    """Live learning: batches, objective, staleness, cadence."""

    batch_size: int = Field(default=16, ge=2, le=4096)
    """Experiences in one optimiser step."""
    min_batch_size: int = Field(default=4, ge=2)
    """A batch that waited too long may be this small."""
    max_batch_wait_s: float = Field(default=300.0, ge=0)
    """After this long without a step a smaller batch will do."""
    uses_per_experience: int = Field(default=3, ge=1, le=16)
    """Optimiser steps that each experience enters, one after the other."""
    max_staleness_steps: int = Field(default=512, ge=1)
    """Hard bound on learner step - step of the oldest version that generated the experience."""
    max_tokens: int = Field(default=4096, ge=2)
    """Longer experiences (prompt and completion) are dropped and counted."""
    scale_by_batch_std: bool = True
    """Divide live advantages by their standard deviation (at least 0.1) over the batch."""
    max_shares: ShareSettings = ShareSettings()
    objective: ObjectiveSettings = TrustRegionSettings()
    baseline: BaselineSettings = BaselineSettings()
    optimiser: OptimiserSettings = OptimiserSettings()

    publish_every_s: float = Field(default=7200.0, gt=0)
    """A candidate is published this often, if there were steps since the last. None is while a
    challenger is in its canary: it would wait, and be behind the champion that comes of it."""
    publish_every_experiences: int | None = Field(default=None, ge=1)
    """And after this many new experiences of the champion, whose policy the candidate has to beat;
    None = by time alone."""
    poll_s: float = Field(default=0.5, gt=0, le=60)
    """Wait before looking again when there is nothing to do."""
    seed: int = Field(default=0, ge=0)
    """Of a fresh adapter."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_batch_size > self.batch_size:
            raise ValueError(
                f"min_batch_size {self.min_batch_size} is above batch_size {self.batch_size}"
            )
        if self.uses_per_experience > self.max_staleness_steps:
            raise ValueError(
                f"uses_per_experience {self.uses_per_experience} is above max_staleness_steps "
                f"{self.max_staleness_steps}: the last uses would always be too stale"
            )
        return self


class BackfillSettings(Block):
    """Simulated learning on the environment's training tasks."""

    steps: int = Field(default=30, ge=1)
    """Optimiser steps of one run."""
    groups_per_step: int = Field(default=4, ge=1)
    """Tasks rolled out for one optimiser step."""
    group_size: int = Field(default=16, ge=2, le=128)
    """Rollouts of one task."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    max_tokens: int = Field(default=128, ge=1)
    """Of one completion."""
    max_batch: int = Field(default=64, ge=1, le=1024)
    """Completions generated together."""
    target_score: float | None = Field(default=None, gt=0, le=1)
    """End early once the mean score of three steps is this high; None = all steps."""
    seed: int = Field(default=0, ge=0)
    """Of tasks, sampling and a fresh adapter."""
    objective: ObjectiveSettings = TrustRegionSettings()
    optimiser: OptimiserSettings = OptimiserSettings(kl_weight=0.0, micro_batch_size=64)
