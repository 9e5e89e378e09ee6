"""Invariant 4: the version in a response is the version that produced it, for every token.

Under load, while versions are swapped: header, body and event name one version, and recomputing the
stored log-probs with that version's weights gives the stored values; any other version does not.
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path

from serving.callers import INTERACTION_HEADER, VERSION_HEADER
from tests.scoring import differences
from tests.serving_process import WHY, Installation, ServingThread, installation, serving
from tidemill.contracts.events import Arm, InteractionServed
from tidemill.storage.replicas import fetch_replica_versions, fetch_swap_figures

IN_FLIGHT = 12
TOLERANCE = 1e-4

Told = dict[str, str]
"""Interaction id to the version that the response named."""


async def keep_asking(server: ServingThread, told: Told, until: asyncio.Event) -> None:
    """Keep requests in flight; every one of them must succeed."""
    numbers = itertools.count()

    async def ask_again_and_again() -> None:
        while not until.is_set():
            number = next(numbers)
            response = await client.chat.completions.with_raw_response.create(
                model="tide",
                messages=[{"role": "user", "content": f"request {number} " * (1 + number % 5)}],
                # Long enough that most of a request is spent in the engine, on a busy machine too.
                max_tokens=40 + number % 20,
                user=f"user {number % 40}",
            )
            version = response.headers[VERSION_HEADER]
            body = response.parse()
            assert body.model == f"tide@{version}"
            assert body.id == response.headers[INTERACTION_HEADER]
            told[body.id] = version

    async with server.async_client() as client:
        await asyncio.gather(*(ask_again_and_again() for _ in range(IN_FLIGHT)))


async def swap_under_load(server: ServingThread, moves: list[Callable[[], list[str]]]) -> Told:
    """Make every move while requests run; each gets time to serve."""
    told: Told = {}
    done = asyncio.Event()
    asking = asyncio.create_task(keep_asking(server, told, done))

    async def wait(call: Callable[[], None]) -> None:
        waiting: Awaitable[None] = asyncio.to_thread(call)
        await waiting

    for move in moves:
        versions = move()
        await wait(lambda versions=versions: server.wait_for_versions(*versions))
        before = len(told)
        while len(told) < before + 3 * IN_FLIGHT and not asking.done():
            await asyncio.sleep(0.02)
    done.set()
    await asking
    return told


def moves_of(
    place: Installation, first: str, second: str, third: str
) -> list[Callable[[], list[str]]]:
    """Canary, promotion, a second promotion, rollback: each says who serves after it."""
    registry = place.registry

    def start_canary() -> list[str]:
        registry.start_canary(second, share=0.5, alpha=0.05, why=WHY)
        return [first, second]

    def promote_second() -> list[str]:
        registry.promote(second, why=WHY)
        return [second]

    def promote_third() -> list[str]:
        registry.promote(third, why=WHY)
        return [third]

    def roll_back() -> list[str]:
        registry.roll_back(why=WHY)
        return [second]

    return [lambda: [first], start_canary, promote_second, promote_third, roll_back]


def test_the_named_version_computed_every_token_while_versions_swap(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        first, second, third = place.crown(seed=1), place.publish(seed=2), place.publish(seed=3)
        with serving(place) as server:
            told = asyncio.run(swap_under_load(server, moves_of(place, first, second, third)))
        events = {event.interaction_id: event for event in place.interactions()}

        assert told.keys() == events.keys()
        by_version: dict[str, list[InteractionServed]] = defaultdict(list)
        for interaction_id, version in told.items():
            event = events[interaction_id]
            assert event.oldest_policy_version == event.newest_policy_version == version
            by_version[version].append(event)
        assert by_version.keys() == {first, second, third}
        for version, served in by_version.items():
            assert max(differences(place, served, version=version)) <= TOLERANCE
            other = next(v for v in by_version if v != version)
            assert min(differences(place, served, version=other)) > TOLERANCE
        _check_arms(events.values())
        _check_swaps(place)


def _check_arms(events: object) -> None:
    arms: dict[str | None, set[Arm]] = defaultdict(set)
    for event in events:  # type: ignore[attr-defined]
        if event.assignment_probability < 1:
            assert event.assignment_probability == 0.5
            arms[event.subject].add(event.arm)
    assert arms
    assert all(len(of_subject) == 1 for of_subject in arms.values()), "a subject changed its arm"
    assert {arm for of_subject in arms.values() for arm in of_subject} == {
        Arm.CHAMPION,
        Arm.CHALLENGER,
    }


def _check_swaps(place: Installation) -> None:
    shared = place.shared
    with place.database.reading() as session:
        figures = fetch_swap_figures(session, model=shared.model, tenant=shared.tenant)
        rows = fetch_replica_versions(session, model=shared.model, tenant=shared.tenant)
    assert [row.outcome for row in reversed(rows)] == ["started", *["flipped"] * 4]
    assert figures.num_flipped == 4
    assert figures.min_in_flight is not None
    assert figures.min_in_flight >= IN_FLIGHT // 2
    assert figures.max_pause_ms is not None
    assert figures.max_pause_ms > 0
