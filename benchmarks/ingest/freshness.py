"""Freshness: from a feedback that is sent to the experience that SQL shows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import Any

import httpx
from pydantic import BaseModel
from sqlalchemy import func, select

from benchmarks.figures import Target, judge, median, percentile
from benchmarks.harness import Rounds
from benchmarks.ingest.apart import running_apart
from benchmarks.ingest.column import (
    Column,
    Installation,
    Servers,
    installed,
    running_worker,
    serving_api,
)
from benchmarks.ingest.events import make_interaction
from benchmarks.ingest.offer import Offer, Offered
from benchmarks.ingest.watch import WatchError, watch
from examples.servers.starting import is_within
from tidemill.contracts.events import InteractionServed
from tidemill.storage.database import Database
from tidemill.storage.tables import InteractionRow

_METRICS = '[metrics.accepted]\ntype = "bool"\nwindow_s = 86400\ncloses = true\n'
_PER_S = 500.0
_CONNECTIONS = 32
_BATCH = 500
_PATIENCE_S = 120.0
_MOST_P50_MS, _MOST_P99_MS = 20.0, 100.0


class Seen(BaseModel):
    """How long it took."""

    p50_ms: float
    p99_ms: float
    most_behind_ms: float
    """The longest that a request waited for a free connection."""
    look_p99_ms: float
    """Between two looks at the table: what it adds to each figure at most."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    num_rounds: int
    num_feedback: int
    num_warm_up: int
    """Of these the first, not counted."""


QUICK = Size(num_rounds=1, num_feedback=3_000, num_warm_up=500)
FULL = Size(num_rounds=5, num_feedback=12_000, num_warm_up=2_000)


@dataclass(slots=True)
class FreshnessPart:
    """All rounds of one column."""

    column: Column
    size: Size
    rounds: Rounds

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept; each has processes and a log of its own."""
        for number in range(self.size.num_rounds):
            if self.rounds.has(self._key(number)):
                continue
            with (
                installed(servers, _METRICS) as installation,
                serving_api(installation),
                running_worker(installation),
            ):
                ids = _post_interactions(installation, self.size.num_feedback)
                self._measure_round(number, installation, ids)

    def figures(self) -> dict[str, float | None]:
        """Return medians over the rounds."""
        seen = [self.rounds.kept(self._key(number), Seen) for number in range(self.size.num_rounds)]
        return {
            f"{self.column}/freshness/{name}": median([getattr(one, name) for one in seen])
            for name in Seen.model_fields
        }

    def targets(self) -> list[Target]:
        """Hold the percentiles against what the issue asks."""
        name = f"{self.column}/freshness"
        figures = self.figures()
        return [
            judge(f"{name}/p50_ms", figures[f"{name}/p50_ms"], _MOST_P50_MS, side="most"),
            judge(f"{name}/p99_ms", figures[f"{name}/p99_ms"], _MOST_P99_MS, side="most"),
        ]

    def _measure_round(self, number: int, installation: Installation, ids: tuple[str, ...]) -> None:
        offer = Offer(
            port=installation.settings.port,
            key=installation.key,
            per_s=_PER_S,
            num_connections=_CONNECTIONS,
            interaction_ids=ids,
        )

        def run() -> Seen:
            with running_apart("benchmarks.ingest.offer", offer) as process:
                seen_at, looks = watch(
                    installation.shared,
                    len(ids),
                    process,
                    give_up_after_s=len(ids) / _PER_S + _PATIENCE_S,
                )
                answer = process.stdout.read() if process.stdout else b""
            offered = Offered.model_validate_json(answer)
            return summarise(ids, offered, seen_at, looks, num_warm_up=self.size.num_warm_up)

        self.rounds.measure(self._key(number), Seen, run)

    def _key(self, number: int) -> str:
        return f"{self.column}/freshness/{self.size.num_feedback}/{number}"


def summarise(
    ids: Sequence[str],
    offered: Offered,
    seen_at: dict[str, float],
    looks: Sequence[float],
    *,
    num_warm_up: int,
) -> Seen:
    """Return the percentiles of what came after the warm-up.

    Args:
        ids: of the interactions, as feedback was offered.
        offered: when.
        seen_at: when each experience was first seen, by the same clock (seconds).
        looks: when the table was looked at.
        num_warm_up: how many of the first are left out.
    """
    waits = [seen_at[one] - due for one, due in zip(ids, offered.due_at, strict=True)]
    gaps = [later - earlier for earlier, later in pairwise(looks)]
    counted = waits[num_warm_up:]
    return Seen(
        p50_ms=percentile(counted, 0.5) * 1000,
        p99_ms=percentile(counted, 0.99) * 1000,
        most_behind_ms=offered.most_behind_s * 1000,
        look_p99_ms=percentile(gaps, 0.99) * 1000,
    )


def _post_interactions(installation: Installation, number: int) -> tuple[str, ...]:
    """Post interactions and wait until the worker has stored them."""
    dice = Random(number)  # noqa: S311  no secret
    served = [make_interaction(dice) for _ in range(number)]
    headers = {
        "Authorization": f"Bearer {installation.key}",
        "Content-Type": "application/x-ndjson",
    }
    url = f"http://127.0.0.1:{installation.settings.port}/v1/interactions:batch"
    with httpx.Client(headers=headers, timeout=60) as http:
        for first in range(0, number, _BATCH):
            lines = [json.dumps(_body(one)) for one in served[first : first + _BATCH]]
            answer = http.post(url, content="\n".join(lines)).raise_for_status()
            if answer.text.count('"accepted"') != len(lines):
                raise WatchError(f"not every interaction was accepted: {answer.text[:500]}")
    database = Database(installation.shared.database_url)
    is_stored = is_within(_PATIENCE_S, lambda: _num_interactions(database) == number)
    database.close()
    if not is_stored:
        raise WatchError(f"the worker has not stored {number} interactions in {_PATIENCE_S} s")
    return tuple(one.interaction_id for one in served)


def _body(served: InteractionServed) -> dict[str, Any]:
    same = {"interaction_id", "content", "context", "prompt_ids", "completion_ids"}
    same |= {"behaviour_logprobs", "sampling", "latency_ms"}
    return served.model_dump(mode="json", include=same) | {
        "policy_version": served.newest_policy_version,
        "consent": True,
        "served_at": datetime.now(UTC).isoformat(),
    }


def _num_interactions(database: Database) -> int | None:
    with database.reading() as session:
        return session.scalar(select(func.count()).select_from(InteractionRow))
