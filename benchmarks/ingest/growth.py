"""Growth: what a worker's memory and an event's cost become as more interactions are open."""

from dataclasses import dataclass
from random import Random

from benchmarks.figures import Target, judge, largest_change, median
from benchmarks.harness import Rounds
from benchmarks.ingest.apart import ask
from benchmarks.ingest.column import Column, Installation, Servers, installed
from benchmarks.ingest.drain import Drain, Drained
from benchmarks.ingest.events import make_feedback_on, make_interaction, to_record
from benchmarks.ingest.filling import Filling
from benchmarks.ingest.join import fill
from tidemill.storage.database import Database

_PATIENCE_S = 600.0
_MOST_MEMORY_CHANGE, _MOST_COST_CHANGE = 0.10, 0.15


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    levels: tuple[int, ...]
    """Open interactions, rising."""
    num_rounds: int
    """At each level; each adds `num_pairs` interactions to it."""
    num_pairs: int
    """New interactions, and feedbacks on old ones."""


FULL = Size(levels=(100_000, 300_000, 1_000_000), num_rounds=3, num_pairs=5_000)


@dataclass(slots=True)
class GrowthPart:
    """All levels of one column, in one database that grows."""

    column: Column
    size: Size
    rounds: Rounds

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept; the rows before it are made again."""
        keys = [self._key(level, number) for level in self.size.levels for number in self._numbers]
        if all(self.rounds.has(key) for key in keys):
            return
        with installed(servers) as installation:
            database = Database(installation.shared.database_url)
            filling = Filling(database, installation.shared.log.num_partitions)
            for level in self.size.levels:
                filling.fill_to(level)
                filling.settle()
                for number in self._numbers:
                    if not self.rounds.has(self._key(level, number)):
                        self._measure_round(level, number, installation, filling)
            database.close()

    def figures(self) -> dict[str, float | None]:
        """Return medians over the rounds of each level, and how far they lie from the first."""
        name = f"{self.column}/growth"
        found: dict[str, float | None] = {}
        for level in self.size.levels:
            drained = self._drained(level)
            found[f"{name}/{level}/us_per_event"] = median([one.us_per_event for one in drained])
            found[f"{name}/{level}/cpu_us_per_event"] = median(
                [one.cpu_us_per_event for one in drained]
            )
            found[f"{name}/{level}/peak_rss_mib"] = median([one.peak_rss_mib for one in drained])
        found[f"{name}/memory_change"] = self._change(found, "peak_rss_mib")
        found[f"{name}/cost_change"] = self._change(found, "us_per_event")
        return found

    def targets(self) -> list[Target]:
        """Hold the changes against what the issue asks."""
        figures = self.figures()
        return bars(self.column, figures)

    @property
    def _numbers(self) -> range:
        return range(self.size.num_rounds)

    def _measure_round(
        self, level: int, number: int, installation: Installation, filling: Filling
    ) -> None:
        dice = Random(level + number)  # noqa: S311  no secret
        pairs = range(self.size.num_pairs)
        targets = filling.take(len(pairs), dice)
        interactions = [to_record(make_interaction(dice)) for _ in pairs]
        feedback = [to_record(make_feedback_on(*target, dice)) for target in targets]
        fill(installation.shared, interactions, feedback)
        asked = Drain(
            shared=installation.shared,
            settings=installation.settings,
            num_records=len(interactions) + len(feedback),
        )
        self.rounds.measure(
            self._key(level, number),
            Drained,
            lambda: ask("benchmarks.ingest.drain", asked, Drained, timeout_s=_PATIENCE_S),
        )

    def _drained(self, level: int) -> list[Drained]:
        return [self.rounds.kept(self._key(level, number), Drained) for number in self._numbers]

    def _change(self, figures: dict[str, float | None], of: str) -> float | None:
        values = [figures[f"{self.column}/growth/{level}/{of}"] for level in self.size.levels]
        return largest_change([one for one in values if one is not None])

    def _key(self, level: int, number: int) -> str:
        return f"{self.column}/growth/{level}/{self.size.num_pairs}/{number}"


def bars(column: Column, figures: dict[str, float | None]) -> list[Target]:
    """Hold figures against what the issue asks; those that are missing are missed."""
    memory, cost = f"{column}/growth/memory_change", f"{column}/growth/cost_change"
    return [
        judge(memory, figures.get(memory), _MOST_MEMORY_CHANGE, side="most"),
        judge(cost, figures.get(cost), _MOST_COST_CHANGE, side="most"),
    ]
