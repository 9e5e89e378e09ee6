"""What the demo reads while the tide runs: versions, moves, swaps, optimiser steps."""

from dataclasses import dataclass
from datetime import datetime

from examples.command_assistant.demo_summary import Versions
from tidemill.contracts.lifecycle import Move
from tidemill.registry import PolicyRecord, PolicyRegistry, Transition
from tidemill.storage.database import Database
from tidemill.storage.learning import fetch_use_counts
from tidemill.storage.replicas import SwapFigures, fetch_swap_figures

MODEL, TENANT = "tide", "default"


@dataclass(frozen=True, slots=True)
class Sight:
    """The releases at one moment."""

    records: tuple[PolicyRecord, ...]
    moves: tuple[Transition, ...]
    swaps: SwapFigures

    def origin(self, version: str) -> str:
        """Return who made a version: base, backfill, live or drill."""
        record = next(record for record in self.records if record.version == version)
        return str(record.provenance.get("origin") or "base")

    @property
    def champion(self) -> str | None:
        """Who serves."""
        return next((r.version for r in self.records if r.status == "champion"), None)

    @property
    def challenger(self) -> str | None:
        """Who is in the canary."""
        return next((r.version for r in self.records if r.status == "challenger"), None)

    def moved(self, move: Move, *, origin: str | None = None) -> list[Transition]:
        """Return the moves of a kind, of versions of one origin."""
        return [
            moved
            for moved in self.moves
            if moved.move is move and (origin is None or self.origin(moved.version) == origin)
        ]

    @property
    def first_champion(self) -> str:
        """Return the version that served first."""
        return self.moved(Move.PROMOTE)[0].version

    def champions_since(self, moment: datetime) -> list[tuple[float, str]]:
        """Return (seconds after the moment, version) of each new champion."""
        arrivals = (m for m in self.moves if m.to_status == "champion" and m.at >= moment)
        return [((move.at - moment).total_seconds(), move.version) for move in arrivals]

    @property
    def promotions(self) -> list[Transition]:
        """Promotions that the live learner earned in a canary."""
        return [m for m in self.moved(Move.PROMOTE, origin="live") if m.from_status == "challenger"]

    @property
    def versions(self) -> Versions:
        """Versions by what became of them."""
        return Versions(
            published=len(self.records),
            promoted=len(self.promotions),
            rejected=len(self.moved(Move.REJECT)),
            rolled_back=len(self.moved(Move.ROLL_BACK)),
        )


class Watch:
    """Reads the rows of one installation; changes nothing."""

    def __init__(self, url: str) -> None:
        self._database = Database(url)
        self._registry = PolicyRegistry(self._database, model=MODEL, tenant=TENANT)

    def look(self) -> Sight:
        """Read once."""
        with self._database.reading() as session:
            swaps = fetch_swap_figures(session, model=MODEL, tenant=TENANT)
        records = tuple(self._registry.list())
        return Sight(records, tuple(self._registry.transitions()), swaps)

    def count_trained(self) -> int:
        """Return how many live experiences entered an optimiser step."""
        with self._database.reading() as session:
            return len(fetch_use_counts(session, f"{MODEL}/{TENANT}"))

    def close(self) -> None:
        """Close the connections."""
        self._database.close()
