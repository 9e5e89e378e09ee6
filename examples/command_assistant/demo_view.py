"""The demo on one screen: stages, the tide, the versions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.command_assistant.demo_watch import Sight
from examples.command_assistant.tally import Tally

BARS = " ▁▂▃▄▅▆▇█"
STATUS_STYLE = {
    "champion": "bold green",
    "challenger": "yellow",
    "candidate": "cyan",
    "retired": "dim",
    "rejected": "red",
}
_WIDTH = 60


@dataclass(slots=True)
class Stage:
    """One step of the demo."""

    name: str
    detail: str = ""
    began_at: float | None = None
    ended_at: float | None = None

    @property
    def is_done(self) -> bool:
        """Whether it is over."""
        return self.ended_at is not None


@dataclass(slots=True)
class Board:
    """Everything the screen shows; rich asks it again and again."""

    title: str
    stages: list[Stage]
    tally: Tally = field(default_factory=Tally)
    sight: Sight | None = None
    news: list[str] = field(default_factory=list)
    started_at: float = field(default_factory=time.monotonic)

    def begin(self, index: int, detail: str = "") -> None:
        """Start a stage."""
        self.stages[index].began_at = time.monotonic()
        self.stages[index].detail = detail

    def end(self, index: int, detail: str) -> None:
        """End a stage with its result."""
        self.stages[index].ended_at = time.monotonic()
        self.stages[index].detail = detail

    def say(self, line: str) -> None:
        """Add a line to the news."""
        self.news.append(f"{time.monotonic() - self.started_at:4.0f} s  {line}")

    def __rich__(self) -> RenderableType:
        """Draw."""
        elapsed = time.monotonic() - self.started_at
        parts: list[RenderableType] = [self._stages()]
        if self.tally.requests:
            parts.append(self._tide())
        if self.sight is not None and self.sight.records:
            parts.append(versions_table(self.sight, self.tally))
        if self.news:
            parts.append(Text("\n".join(self.news[-6:]), style="dim"))
        return Panel(Group(*parts), title=f"{self.title}  {elapsed:.0f} s", box=box.ROUNDED)

    def _stages(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for stage in self.stages:
            sign, style = ("·", "dim") if stage.began_at is None else ("▸", "bold yellow")
            if stage.is_done:
                sign, style = "✓", "green"
            end = stage.ended_at or time.monotonic()
            took = "" if stage.began_at is None else f"{end - stage.began_at:.0f} s"
            table.add_row(
                Text(sign, style), Text(stage.name, style), Text(took, "dim"), stage.detail
            )
        return table

    def _tide(self) -> Panel:
        tally = self.tally
        curve = [share for _, share in tally.curve("accepted", width_s=3)][-_WIDTH:]
        now = tally.acceptance()
        swaps = self.sight.swaps if self.sight else None
        line = Text.assemble(
            ("accepted by users ", "bold"),
            (sparkline(curve), "cyan"),
            (f" {now:.0%}" if now is not None else " -", "bold cyan"),
        )
        facts = (
            f"{tally.rate():.0f} requests/s   {tally.requests} requests   "
            f"{tally.failed_requests} failed   {tally.feedback_sent} feedback   "
            f"{swaps.num_flipped if swaps else 0} swaps"
        )
        return Panel(Group(line, Text(facts)), title="the tide", box=box.SIMPLE)


def sparkline(shares: Sequence[float]) -> str:
    """Return one bar for each share in [0, 1]."""
    top = len(BARS) - 1
    return "".join(BARS[min(top, max(0, round(share * top)))] for share in shares)


def versions_table(sight: Sight, tally: Tally) -> Table:
    """Return the versions, who made them and how far they came."""
    served: dict[str, list[int]] = {}
    for second in list(tally.seconds.values()):
        for version, count in second.by_version.items():
            served.setdefault(version, []).append(count)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("version", "made by", "status", "answers", "last move"):
        table.add_column(name, justify="right" if name == "answers" else "left")
    for record in sight.records:
        moves = [move for move in sight.moves if move.version == record.version]
        style = STATUS_STYLE.get(record.status.value, "")
        table.add_row(
            Text(record.version, style),
            sight.origin(record.version),
            Text(record.status.value, style),
            str(sum(served.get(record.version, [0]))),
            Text(moves[-1].reason[:60] if moves else "", overflow="ellipsis", no_wrap=True),
        )
    return table
