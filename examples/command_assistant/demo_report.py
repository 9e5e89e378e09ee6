"""The demo's last screen."""

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from examples.command_assistant.demo_stack import PRODUCTION
from examples.command_assistant.demo_summary import Figures, Goal
from examples.command_assistant.tally import Tally


def print_report(console: Console, figures: Figures, goals: list[Goal], tally: Tally) -> None:
    """Print the figures against their goals."""
    table = Table(title="Tidemill demo", box=box.SIMPLE_HEAD)
    for name in ("goal", "target", "value", ""):
        table.add_column(name, justify="right" if name == "value" else "left")
    for goal in goals:
        sign = "[green]met[/]" if goal.met else "[bold red]missed[/]"
        table.add_row(goal.name, goal.target, _text(goal.value), sign)
    console.print(table)
    versions = figures.versions
    pause = figures.max_swap_pause_ms
    console.print(
        f"acceptance {figures.acceptance_before:.1%} -> {figures.acceptance_after:.1%} with "
        f"{figures.feedback_events_trained} feedback events trained on; {figures.requests} "
        f"requests, {figures.feedback_sent} feedback sent; {versions.published} versions, "
        f"{versions.promoted} promoted, {versions.rejected} rejected, {versions.rolled_back} "
        f"rolled back; longest swap pause {'-' if pause is None else f'{pause:.1f} ms'}; "
        f"{figures.wall_s:.0f} s in all (seed {figures.seed})."
    )
    for failure in tally.failures:
        console.print(f"[red]failed request:[/] {failure}")


def print_places(console: Console, folder: Path, *, stack: str) -> None:
    """Print where everything lies and how to look closer."""
    console.print(
        f"{folder}: summary.json, acceptance.png, releases.txt (releases and ledger), logs/"
    )
    if stack == PRODUCTION:
        console.print("the servers end with the demo; what MLflow's server kept: make mlflow")
    else:
        command = f"tidemill --settings {folder}/tidemill.toml releases list"
        console.print(f"look closer: {command}   |   make mlflow")


def _text(value: float | int | bool | None) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
