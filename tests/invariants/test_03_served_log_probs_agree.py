"""Invariant 3: the log-probs of serving and of the learner agree on the same weights.

Requests go through HTTP, batched with others of other lengths; values are read back from the stored
event and compared with what the learner computes. The adapter's B is not zero.
"""

import asyncio
from pathlib import Path

import pytest

from tests.scoring import differences
from tests.serving_process import ServingThread, installation, serving

TOLERANCE = 1e-4


async def ask_at_once(server: ServingThread, *, temperature: float, count: int) -> None:
    async with server.async_client() as client:
        await asyncio.gather(
            *(
                client.chat.completions.create(
                    model="tide",
                    messages=[{"role": "user", "content": "lamp " * (1 + 3 * number)}],
                    temperature=temperature,
                    max_tokens=4 + 3 * number,
                )
                for number in range(count)
            )
        )


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_stored_log_probs_are_those_of_the_learner(tmp_path: Path, temperature: float) -> None:
    with installation(tmp_path / "data") as place:
        version, other = place.crown(seed=1), place.publish(seed=2)
        with serving(place) as server:
            asyncio.run(ask_at_once(server, temperature=temperature, count=12))
        events = place.interactions()

        assert len(events) == 12
        assert {event.sampling.temperature for event in events} == {temperature}
        assert len({len(event.prompt_ids) for event in events}) == 12
        assert len({len(event.completion_ids) for event in events}) >= 3
        assert max(differences(place, events, version=version)) <= TOLERANCE
        # The test can fail: other weights give other values.
        assert max(differences(place, events, version=other)) > 100 * TOLERANCE


def test_truncated_sampling_keeps_untruncated_log_probs_and_the_kept_mass(tmp_path: Path) -> None:
    with installation(tmp_path / "data") as place:
        version = place.crown(seed=1)
        with serving(place) as server, server.client() as client:
            client.chat.completions.create(
                model="tide", messages=[{"role": "user", "content": "a"}], top_p=0.5, max_tokens=20
            )
        [event] = place.interactions()

        assert max(differences(place, [event], version=version)) <= TOLERANCE
        assert event.kept_mass is not None
        assert all(0.5 <= mass < 1 for mass in event.kept_mass)
