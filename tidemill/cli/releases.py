"""`tidemill releases`: versions side by side, and the two moves a person may make."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidemill.cli.context import load_settings, opened_database

if TYPE_CHECKING:
    from gating.figures import VersionFigures
    from tidemill.registry import PolicyRegistry

_group = typer.Typer(
    help="Versions: list, show, compare, promote, roll back.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Reason = Annotated[str, typer.Option(help="Why; kept with the move.")]

OPERATOR = "operator"
_LIST_HEADER = (
    "version",
    "status",
    "offline",
    "live",
    "95 %",
    "labels",
    "malformed",
    "events",
    "parent",
    "verdict",
)
_ROWS = (
    ("status", "status"),
    ("origin", "origin"),
    ("parent", "parent"),
    ("published", "published_at"),
    ("offline score", "offline_score"),
    ("live acceptance", "live_acceptance"),
    ("  interval (95 %)", "interval"),
    ("  labelled subjects", "live_labelled"),
    ("malformed rate", "malformed_rate"),
    ("mean length (tokens)", "mean_tokens"),
    ("events trained on", "events"),
    ("optimiser steps", "step"),
    ("staleness (steps)", "staleness"),
    ("KL to reference", "kl"),
    ("verdict", "verdict"),
    ("reason", "reason"),
)
"""Line of the comparison -> field."""


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(_group, name="releases")


@_group.command("list")
def list_releases(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List all versions with their figures, oldest first."""
    from gating.figures import collect_figures

    with _registry(ctx) as registry:
        figures = [collect_figures(registry, record) for record in registry.list()]
    if as_json:
        typer.echo(json.dumps([version.to_json() for version in figures]))
        return
    if not figures:
        typer.echo(
            "no versions yet; `tidemill base train` or `tidemill base import` makes the first"
        )
        return
    rows = [
        (
            version.version,
            version.status,
            _text(version.offline_score),
            _text(version.live_acceptance),
            _interval(version),
            str(version.live_labelled),
            _text(version.malformed_rate),
            str(version.events),
            version.parent or "-",
            version.verdict or "-",
        )
        for version in figures
    ]
    _print_table(
        _LIST_HEADER,
        rows,
    )


@_group.command("show")
def show_release(
    ctx: typer.Context,
    version: Annotated[str, typer.Argument(help="v3-0a1b2c3d4e5f, or short: v3.")],
    as_json: AsJson = False,
) -> None:
    """Show one version: figures, moves, and the gate's decisions with their reasons."""
    from gating.figures import collect_figures

    with _registry(ctx) as registry:
        record = registry.find(version)
        figures = collect_figures(registry, record)
        moves = registry.transitions(record.version)
        decisions = registry.decisions(record.version)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    **figures.to_json(),
                    "provenance": record.provenance,
                    "moves": [
                        {
                            "at": move.at.isoformat(),
                            "move": move.move,
                            "to": move.to_status,
                            "actor": move.actor,
                            "reason": move.reason,
                        }
                        for move in moves
                    ],
                    "decisions": [
                        {
                            "at": stored.at.isoformat(),
                            "stage": stored.run.stage,
                            "verdict": stored.run.verdict,
                            "reasons": stored.run.reasons,
                            "evidence": stored.run.evidence,
                        }
                        for stored in decisions
                    ],
                }
            )
        )
        return
    _print_table(("", record.version), _side_by_side([figures]))
    _print_table(
        ("moved", "to", "by", "reason"),
        [(f"{m.at:%F %T}", m.to_status, m.actor, m.reason) for m in moves],
    )
    _print_table(
        ("decided", "stage", "verdict", "reasons"),
        [
            (f"{d.at:%F %T}", d.run.stage, d.run.verdict, "; ".join(d.run.reasons))
            for d in decisions
        ],
    )


@_group.command("compare")
def compare_releases(
    ctx: typer.Context,
    first: Annotated[str, typer.Argument(help="v2, for example.")],
    second: Annotated[str, typer.Argument(help="v3, for example.")],
    as_json: AsJson = False,
) -> None:
    """Show two versions side by side: scores, guardrails, data, verdicts."""
    from gating.figures import collect_figures

    with _registry(ctx) as registry:
        figures = [collect_figures(registry, registry.find(version)) for version in (first, second)]
    if as_json:
        typer.echo(json.dumps([version.to_json() for version in figures]))
        return
    _print_table(("", *(version.version for version in figures)), _side_by_side(figures))


@_group.command("promote")
def promote_release(
    ctx: typer.Context,
    version: Annotated[str, typer.Argument(help="v3-0a1b2c3d4e5f, or short: v3.")],
    reason: Reason,
    force: Annotated[
        bool, typer.Option("--force", help="Needed: this goes past the gate's evidence.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a candidate or challenger the champion, past the gate; the champion's watch stays on."""
    if not force:
        typer.echo(
            "the gate promotes on evidence; to go past it, add --force (the watch over the "
            "champion still rolls back on proof of harm)",
            err=True,
        )
        raise typer.Exit(2)
    from tidemill.registry import Why

    with _registry(ctx) as registry:
        record = registry.find(version)
        registry.promote(record.version, why=Why(reason=reason, actor=OPERATOR))
    _say({"champion": record.version}, f"{record.version} is champion", as_json=as_json)


@_group.command("rollback")
def roll_back_release(ctx: typer.Context, reason: Reason, as_json: AsJson = False) -> None:
    """Take the champion away and restore the one before it; needs only the database."""
    from tidemill.registry import Why

    with _registry(ctx) as registry:
        restored = registry.roll_back(why=Why(reason=reason, actor=OPERATOR))
    _say({"champion": restored}, f"{restored} is champion again", as_json=as_json)


@contextmanager
def _registry(ctx: typer.Context) -> "Iterator[PolicyRegistry]":
    from tidemill.registry import PolicyRegistry

    shared = load_settings(ctx).shared
    with opened_database(shared) as database:
        yield PolicyRegistry(database, model=shared.model, tenant=shared.tenant)


def _side_by_side(figures: "Sequence[VersionFigures]") -> list[tuple[str, ...]]:
    fields = [{**version.to_json(), "interval": _interval(version)} for version in figures]
    return [(name, *(_text(one[field]) for one in fields)) for name, field in _ROWS]


def _interval(version: "VersionFigures") -> str:
    if version.live_labelled == 0:
        return "-"
    return f"{version.live_low:.2f} to {version.live_high:.2f}"


def _text(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _say(document: dict[str, Any], line: str, *, as_json: bool) -> None:
    typer.echo(json.dumps(document) if as_json else line)


def _print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    Console().print(table)
