"""Sample-ratio check: do the arms' sizes fit the declared share? Pure, fair at any look.

The e-value is the Beta-mixture likelihood of the counts over their likelihood at the declared
share. A mismatch means that assignment, logging or the join loses one arm's subjects, so nothing
can be compared.
"""

from dataclasses import dataclass
from math import lgamma, log

_PRIOR_STRENGTH = 20.0
"""Pseudo-subjects of the Beta prior, centred on the declared share."""


@dataclass(frozen=True, slots=True)
class SampleRatio:
    """Subjects of each arm, and the evidence against the declared share."""

    num_champion: int
    num_challenger: int
    log_e_value: float

    def is_broken(self, alpha: float) -> bool:
        """Whether the counts contradict the share at a level."""
        return self.log_e_value >= -log(alpha)


def check_sample_ratio(num_champion: int, num_challenger: int, *, share: float) -> SampleRatio:
    """Weigh two counts of subjects against the challenger's declared share.

    Raises:
        ValueError: a count is negative or the share is not between 0 and 1.
    """
    if min(num_champion, num_challenger) < 0 or not 0 < share < 1:
        raise ValueError(f"counts {num_champion}, {num_challenger} and share {share} make no sense")
    a, b = _PRIOR_STRENGTH * share, _PRIOR_STRENGTH * (1 - share)
    log_mixture = _log_beta(a + num_challenger, b + num_champion) - _log_beta(a, b)
    log_declared = num_challenger * log(share) + num_champion * log(1 - share)
    return SampleRatio(num_champion, num_challenger, log_mixture - log_declared)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)
