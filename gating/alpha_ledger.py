"""The alpha ledger: how much of the declared level each canary may spend. Pure.

e-LOND (Xu and Ramdas, 2024): canary t promotes at an e-value of 1 / alpha_t with

    alpha_t = alpha * gamma_t * (1 + promotions before t),   sum of gamma = 1.

The false discovery rate (the expected share of false promotions among all) then stays at alpha or
below over the whole endless stream, however the canaries depend on each other. gamma_t is
proportional to t^-1.6: slow enough that a release train of years keeps a usable level.
"""

_EXPONENT = 1.6
_ZETA = 2.2858
"""zeta(1.6), rounded up, so that the sum stays below 1."""


def compute_weight(number: int) -> float:
    """Return gamma of the canary at a position, from 1.

    Raises:
        ValueError: the position is no position.
    """
    if number < 1:
        raise ValueError(f"canaries are numbered from 1, got {number}")
    return float(number**-_EXPONENT) / _ZETA


def allocate_alpha(*, alpha: float, number: int, num_promoted: int) -> float:
    """Return the level of the canary at a position of the stream, from 1.

    Raises:
        ValueError: more promotions than canaries before it, or alpha is no level.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, got {alpha}")
    if not 0 <= num_promoted < number:
        raise ValueError(f"{num_promoted} promotions before canary {number}")
    return alpha * compute_weight(number) * (1 + num_promoted)
