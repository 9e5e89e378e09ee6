"""The feedback API beside a bare endpoint, by turns: one at a time and in batches."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.figures import Target, judge, median, median_ratio
from benchmarks.harness import Rounds
from benchmarks.ingest.column import Column, Servers, installed, serving, serving_api
from benchmarks.ingest.load import Answered, Load, send_apart
from examples.servers.starting import free_port

CONCURRENCIES = (1, 8, 64)
BATCH_ITEMS = (100, 1000)
_BATCH_CONNECTIONS = 4
_PRODUCT, _BARE = "product", "bare"
_LEAST_RATIO = {
    (Column.EMBEDDED, 64): 0.60,
    (Column.EMBEDDED, 8): 0.50,
    (Column.KAFKA, 64): 0.50,
    (Column.KAFKA, 8): 0.33,
}
_MOST_P99_MS = 8.0
_LEAST_ITEMS_PER_S = {Column.EMBEDDED: 100_000, Column.KAFKA: 35_000}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    num_rounds: int
    seconds: float
    """Of each load."""


QUICK = Size(num_rounds=1, seconds=1.5)
FULL = Size(num_rounds=5, seconds=5.0)


@dataclass(slots=True)
class ApiPart:
    """All rounds of one column."""

    column: Column
    size: Size
    rounds: Rounds

    def measure(self, servers: Servers) -> None:
        """Measure every round that is not kept; each has processes and a log of its own."""
        for number in range(self.size.num_rounds):
            if all(self.rounds.has(key) for key in self._keys(number)):
                continue
            with ExitStack() as stack:
                installation = stack.enter_context(installed(servers))
                stack.enter_context(serving_api(installation))
                port = free_port()
                stack.enter_context(serving("benchmarks.ingest.bare", [str(port)], port))
                ports = {_PRODUCT: installation.settings.port, _BARE: port}
                self._measure_round(number, ports, installation.key)

    def figures(self) -> dict[str, float | None]:
        """Return medians over the rounds."""
        found: dict[str, float | None] = {}
        for load, who in self._loads():
            name = f"{self.column}/{_name(load)}/{who}"
            answers = self._answers(load, who)
            found[f"{name}/per_s"] = median([one.per_s for one in answers])
            found[f"{name}/p50_ms"] = median([one.p50_ms for one in answers])
            found[f"{name}/p99_ms"] = median([one.p99_ms for one in answers])
        for connections in CONCURRENCIES:
            found[f"{self.column}/c{connections}/ratio"] = self._ratio(connections)
        return found

    def targets(self) -> list[Target]:
        """Hold the figures against what the issue asks."""
        figures = self.figures()
        bars = [
            judge(f"{column}/c{number}/ratio", self._ratio(number), bound, side="least")
            for (column, number), bound in _LEAST_RATIO.items()
            if column is self.column
        ]
        p99 = f"{self.column}/c8/product/p99_ms"
        items = f"{self.column}/c4x1000/product/per_s"
        bars.append(judge(p99, figures[p99], _MOST_P99_MS, side="most"))
        bars.append(judge(items, figures[items], _LEAST_ITEMS_PER_S[self.column], side="least"))
        return bars

    def _measure_round(self, number: int, ports: Mapping[str, int], key: str) -> None:
        for load, who in self._loads():
            aimed = load.model_copy(update={"port": ports[who], "key": key})
            key_of_round = self._key(number, load, who)
            self.rounds.measure(key_of_round, Answered, partial(send_apart, aimed))

    def _loads(self) -> list[tuple[Load, str]]:
        """Return what is measured in a round, peers next to each other."""
        single = [(number, 1, who) for number in CONCURRENCIES for who in (_BARE, _PRODUCT)]
        batched = [(_BATCH_CONNECTIONS, items, _PRODUCT) for items in BATCH_ITEMS]
        return [
            (
                Load(
                    port=0,
                    key="",
                    num_connections=connections,
                    num_items=items,
                    seconds=self.size.seconds,
                ),
                who,
            )
            for connections, items, who in single + batched
        ]

    def _keys(self, number: int) -> list[str]:
        return [self._key(number, load, who) for load, who in self._loads()]

    def _key(self, number: int, load: Load, who: str) -> str:
        return f"{self.column}/{_name(load)}/{who}/{self.size.seconds}s/{number}"

    def _answers(self, load: Load, who: str) -> list[Answered]:
        keys = [self._key(number, load, who) for number in range(self.size.num_rounds)]
        return [self.rounds.kept(key, Answered) for key in keys]

    def _ratio(self, connections: int) -> float | None:
        per_s = {
            who: [one.per_s for one in self._answers(load, who)]
            for load, who in self._loads()
            if load.num_connections == connections and load.num_items == 1
        }
        return median_ratio(per_s[_PRODUCT], per_s[_BARE])


def _name(load: Load) -> str:
    many = "" if load.num_items == 1 else f"x{load.num_items}"
    return f"c{load.num_connections}{many}"
