import random
from collections import Counter

import pytest

from examples.command_assistant.taste import MAJORITY, MINORITY_SHARE
from examples.command_assistant.users import Habits, draw_users, noisy_vote

HABITS = Habits()
DRAWS = 20_000


@pytest.mark.parametrize(
    ("is_liked", "expected"), [(True, 1 - HABITS.rejects_right), (False, HABITS.accepts_wrong)]
)
def test_votes_are_as_noisy_as_declared(is_liked: bool, expected: float) -> None:
    rng = random.Random(1)
    share = sum(noisy_vote(is_liked, HABITS, rng) for _ in range(DRAWS)) / DRAWS
    assert share == pytest.approx(expected, abs=0.01)


def test_most_users_stay_silent() -> None:
    assert HABITS.answering < 0.5


def test_tastes_are_mostly_shared_and_sometimes_not() -> None:
    users = draw_users(4000, seed=1)
    for kind, liked in MAJORITY.items():
        counts = Counter(user.taste.liked[kind] for user in users)
        assert counts[liked] / len(users) == pytest.approx(1 - MINORITY_SHARE, abs=0.015)
        assert len(counts) > 1


def test_equal_seeds_give_equal_users_with_names_of_their_own() -> None:
    users = draw_users(100, seed=1)
    assert users == draw_users(100, seed=1)
    assert users != draw_users(100, seed=2)
    assert len({user.name for user in users}) == 100
