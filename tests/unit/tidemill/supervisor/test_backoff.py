import pytest

from tidemill.supervisor.backoff import Backoff, Restart, next_restart

_BACKOFF = Backoff(first_s=0.25, max_s=3.0, stable_s=20.0)


@pytest.mark.parametrize(
    ("num_short_lives", "delay_s"),
    # 0.25 doubles with each short life, up to 3.
    [(0, 0.25), (1, 0.5), (2, 1.0), (3, 2.0), (4, 3.0), (5, 3.0), (1_000_000, 3.0)],
)
def test_waits_double_up_to_the_limit(num_short_lives: int, delay_s: float) -> None:
    restart = next_restart(_BACKOFF, num_short_lives=num_short_lives, lived_s=1.0)
    assert restart == Restart(num_short_lives + 1, delay_s)


def test_a_long_life_begins_anew() -> None:
    assert next_restart(_BACKOFF, num_short_lives=7, lived_s=20.0) == Restart(0, 0.25)
