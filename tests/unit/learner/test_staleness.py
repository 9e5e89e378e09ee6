from math import log

import pytest

from learner.staleness import (
    MIN_TEMPERATURE,
    DropReason,
    Limits,
    compute_staleness,
    find_unfit,
    is_over_stale,
)
from tests.factories import make_experience

LIMITS = Limits(vocabulary=260, max_tokens=64)
DRAWN = {"is_truncated": True, "kept_mass": (0.9, 0.9, 0.9)}
CERTAIN = tuple(map(log, (0.9, 0.4, 0.99)))
"""Log-probs of the only tokens that a truncation to these masses left."""


@pytest.mark.parametrize(
    ("learner_step", "version_step", "staleness"), [(10, 4, 6), (4, 4, 0), (4, 10, 0)]
)
def test_staleness_counts_optimiser_steps_and_is_never_negative(
    learner_step: int, version_step: int, staleness: int
) -> None:
    assert compute_staleness(learner_step=learner_step, version_step=version_step) == staleness


@pytest.mark.parametrize(("staleness", "expected"), [(6, False), (7, True)])
def test_the_bound_holds_for_the_last_use_too(staleness: int, expected: bool) -> None:
    # Three uses at staleness 6, 7 and 8.
    assert is_over_stale(staleness, num_uses=3, max_staleness=8) is expected


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({}, None),
        ({"arm": "pinned"}, DropReason.PINNED),
        ({"completion_ids": ()}, DropReason.NO_TOKENS),
        ({"prompt_ids": ()}, DropReason.NO_TOKENS),
        ({"behaviour_logprobs": None}, DropReason.NO_LOGPROBS),
        ({"behaviour_logprobs": (-0.5,)}, DropReason.NO_LOGPROBS),
        ({"is_truncated": True}, DropReason.NO_KEPT_MASS),
        (DRAWN | {"kept_mass": (0.9,)}, DropReason.NO_KEPT_MASS),
        (DRAWN, None),
        ({"prompt_ids": (1,) * 62}, DropReason.TOO_LONG),
        ({"prompt_ids": (1, 260)}, DropReason.OUTSIDE_VOCABULARY),
        ({"completion_ids": (259, 0, 260)}, DropReason.OUTSIDE_VOCABULARY),
        ({"completion_ids": (259, 0, -1)}, DropReason.OUTSIDE_VOCABULARY),
        ({"completion_ids": (259, 0, 0)}, None),
        ({"behaviour_logprobs": (0.0, float("nan"), 0.0)}, DropReason.NON_FINITE),
        (DRAWN | {"kept_mass": (0.9, float("nan"), 0.9)}, DropReason.NON_FINITE),
        ({"temperature": float("nan")}, DropReason.NON_FINITE),
        ({"behaviour_logprobs": (-0.5, -1e308, -0.5)}, DropReason.IMPOSSIBLE_LOGPROB),
        ({"behaviour_logprobs": (-0.5, -105.0, -0.5)}, DropReason.IMPOSSIBLE_LOGPROB),
        ({"behaviour_logprobs": (-0.5, 0.1, -0.5)}, DropReason.IMPOSSIBLE_LOGPROB),
        ({"behaviour_logprobs": (-103.0, 1e-6, 0.0)}, None),
        (DRAWN | {"kept_mass": (0.0, 0.9, 0.9)}, DropReason.IMPOSSIBLE_KEPT_MASS),
        (DRAWN | {"kept_mass": (-0.5, 0.9, 0.9)}, DropReason.IMPOSSIBLE_KEPT_MASS),
        (DRAWN | {"kept_mass": (1.1, 0.9, 0.9)}, DropReason.IMPOSSIBLE_KEPT_MASS),
        (DRAWN | {"kept_mass": (1.000001, 1.0, 1e-3)}, None),
        (DRAWN | {"kept_mass": (0.9, 0.4, 0.99), "behaviour_logprobs": CERTAIN}, DropReason.GREEDY),
        (DRAWN | {"behaviour_logprobs": CERTAIN}, None),
        ({"behaviour_logprobs": (0.0, 0.0, 0.0)}, None),
        ({"temperature": 1e-4}, DropReason.GREEDY),
        ({"temperature": MIN_TEMPERATURE}, None),
        ({"reward": float("inf"), "components": {}}, DropReason.NON_FINITE),
        ({"reward": 1.5, "components": {}}, DropReason.OUT_OF_RANGE),
    ],
)
def test_unfit_experiences_have_a_reason(over: dict[str, object], reason: DropReason) -> None:
    assert find_unfit(make_experience(**over), LIMITS) == reason
