import asyncio
import random
from collections import Counter

import openai
import pytest

from examples.command_assistant.client import Answer
from examples.command_assistant.kinds import KIND_BY_NAME
from examples.command_assistant.tally import Tally
from examples.command_assistant.taste import MAJORITY
from examples.command_assistant.tools import answer_text
from examples.command_assistant.users import MALICIOUS, Crowd, Habits, draw_users, noisy_vote
from tidemill.client import Feedback

FAST = Habits(arriving_s=0.01, think_s=0.06, late_s=0.06, repeats=0.2, changes=0.1)


class ObligingProduct:
    """Answers every request in the way that most people like, and keeps what it is told."""

    def __init__(self, *, fails_every: int = 0) -> None:
        self.fails_every = fails_every
        self.subjects: list[str] = []
        self.feedback: list[Feedback] = []
        self.garbage = 0
        self.in_flight = 0
        self.most_in_flight = 0

    async def ask(self, task, *, subject: str) -> Answer:
        self.subjects.append(subject)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.001)
        self.in_flight -= 1
        if self.fails_every and len(self.subjects) % self.fails_every == 0:
            raise openai.OpenAIError("no answer")
        kind = KIND_BY_NAME[task.context]
        way = next(way for way in kind.ways if way.name == MAJORITY[kind.name])
        text = answer_text(kind, task.reference["slots"], way)
        return Answer(
            text=text, interaction_id=f"i{len(self.subjects)}", policy_version="v1-000000000000"
        )

    async def tell(self, feedback: Feedback) -> int:
        self.feedback.append(feedback)
        return 202

    async def tell_garbage(self, body: bytes) -> int:
        assert body
        self.garbage += 1
        return 422


def _talk(product: ObligingProduct, *, seconds: float = 0.4) -> Tally:
    async def run() -> Tally:
        tally = Tally()
        tally.start()
        crowd = Crowd(product, draw_users(500, seed=1), tally, habits=FAST, seed=1)  # type: ignore[arg-type]
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, stop.set)
        await crowd.run(stop, in_flight=8)
        return tally

    return asyncio.run(run())


def test_noise_has_the_declared_rates() -> None:
    habits, rng = Habits(), random.Random(0)
    count = 20_000
    rejected = sum(not noisy_vote(True, habits, rng) for _ in range(count)) / count
    accepted = sum(noisy_vote(False, habits, rng) for _ in range(count)) / count
    # Standard error 0.002.
    assert rejected == pytest.approx(habits.rejects_right, abs=0.01)
    assert accepted == pytest.approx(habits.accepts_wrong, abs=0.01)


def test_most_stay_silent() -> None:
    assert Habits().answering < 0.5


def test_equal_seeds_give_equal_people() -> None:
    assert draw_users(100, seed=1) == draw_users(100, seed=1)
    assert draw_users(100, seed=1) != draw_users(100, seed=2)
    assert len({user.name for user in draw_users(100, seed=1)}) == 100


def test_users_ask_and_some_of_them_vote() -> None:
    product = ObligingProduct()
    tally = _talk(product)
    honest = [body for body in product.feedback if body.rater != MALICIOUS]
    assert product.most_in_flight >= 8
    assert tally.requests == len(product.subjects) > 100
    assert 0 < len(honest) < tally.requests
    assert tally.feedback_sent == len(product.feedback)
    assert sum(bool(body.value) for body in honest) / len(honest) > 0.7


def test_nobody_asks_twice_before_all_have_asked() -> None:
    product = ObligingProduct()
    _talk(product)
    honest = [subject for subject in product.subjects if subject != MALICIOUS]
    assert max(Counter(honest[:400]).values()) == 1


def test_repeats_carry_the_same_id_and_body() -> None:
    product = ObligingProduct()
    _talk(product)
    by_id: dict[str, list[Feedback]] = {}
    for body in product.feedback:
        by_id.setdefault(body.feedback_id, []).append(body)
    repeated = [bodies for bodies in by_id.values() if len(bodies) > 1]
    assert repeated
    assert all(body == bodies[0] for bodies in repeated for body in bodies)


def test_one_user_floods_false_votes_and_garbage() -> None:
    product = ObligingProduct()
    _talk(product)
    bodies = [body for body in product.feedback if body.rater == MALICIOUS]
    assert len(bodies) >= 3
    assert not any(bool(body.value) for body in bodies)
    assert product.garbage >= 1


def test_failed_requests_are_counted() -> None:
    tally = _talk(ObligingProduct(fails_every=5))
    assert tally.failed_requests >= 1
    assert tally.failures[0] == "OpenAIError: no answer"
