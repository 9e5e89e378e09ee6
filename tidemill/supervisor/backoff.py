"""Pure: how long to wait before a part that ended is started again."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling waits; a part that lived long enough begins anew."""

    first_s: float = 0.25
    max_s: float = 30.0
    stable_s: float = 20.0
    """A life of at least this long is no sign of a start that fails."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What follows one end."""

    num_short_lives: int
    """Short lives in a row, this one included."""
    delay_s: float


def next_restart(backoff: Backoff, *, num_short_lives: int, lived_s: float) -> Restart:
    """Return the wait after a life of `lived_s` that followed `num_short_lives` short ones."""
    if lived_s >= backoff.stable_s:
        return Restart(0, backoff.first_s)
    # 2^30 is far beyond any limit and still a float.
    doubled = backoff.first_s * 2.0 ** min(num_short_lives, 30)
    return Restart(num_short_lives + 1, min(backoff.max_s, doubled))
