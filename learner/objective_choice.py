"""From the settings' objective to its function."""

from collections.abc import Callable
from functools import partial

from learner.objectives import (
    ObjectiveInputs,
    ObjectiveOutput,
    compute_cispo,
    compute_gspo,
    compute_ppo_clip,
    compute_truncated_importance,
    compute_trust_region,
)
from learner.settings import ObjectiveSettings

Objective = Callable[[ObjectiveInputs], ObjectiveOutput]

_FUNCTIONS: dict[str, Callable[..., ObjectiveOutput]] = {
    "trust_region": compute_trust_region,
    "ppo_clip": compute_ppo_clip,
    "cispo": compute_cispo,
    "gspo": compute_gspo,
    "truncated_importance": compute_truncated_importance,
}


def choose_objective(settings: ObjectiveSettings) -> Objective:
    """Return the named objective with its numbers filled in."""
    return partial(_FUNCTIONS[settings.kind], **settings.model_dump(exclude={"kind"}))
